/** Elements, made by calls alone: no text ever becomes markup. */

const SVG = "http://www.w3.org/2000/svg";

/** An element; a property whose name begins with "on" is a listener, any other an attribute; null and false are left out. */
export function make(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** An element of a drawing. */
export function shape(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Writes a text where another one stands: what has not changed is not touched. */
export function write(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

/** Sets an attribute where it differs; null takes it away. */
export function mark(node, name, value) {
  if (value === null) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

/** Shows or hides. */
export function show(node, shown) {
  if (node.hidden === shown) {
    node.hidden = !shown;
  }
}

/** Puts the children of `parent` in this order, moving none that stands right, so that focus and selection stay. */
export function arrange(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.children]) {
    if (!wanted.has(child)) {
      child.remove();
    }
  }
  children.forEach((child, place) => {
    if (parent.children[place] !== child) {
      parent.insertBefore(child, parent.children[place] ?? null);
    }
  });
}

/** A function that draws once before the next frame, however often it is called. */
export function coalesced(draw) {
  let asked = false;
  return () => {
    if (!asked) {
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        draw();
      });
    }
  };
}
