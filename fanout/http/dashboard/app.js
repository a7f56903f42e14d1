/** The page around the views: which one is shown, who is signed in, and what is said aloud. */

import { api, Problem } from "./api.js";
import { BatchView } from "./batch.js";
import { make, mark, show, write } from "./dom.js";
import { refreshTimes } from "./formats.js";
import { Listing } from "./listing.js";
import { Missing } from "./missing.js";
import { SignIn } from "./signing.js";
import { shown, visible } from "./text.js";

const TICK_MILLISECONDS = 1_000;
const AGAIN_MILLISECONDS = 3_000;
const CONNECTIONS = {
  live: "Live",
  reconnecting: "Reconnecting…",
  stale: "The figures are old: the database does not answer",
  closed: "Up to date",
};
const LIST = /^\/?$/;
const BATCH = /^\/batches\/([^/%]+)$/;

class App {
  constructor() {
    this.main = document.getElementById("main");
    this.connectionMark = document.getElementById("connection");
    this.announcer = document.getElementById("announcer");
    this.signOutButton = document.getElementById("sign-out");
    this.workflowsUrl = null;
  }

  async start() {
    window.addEventListener("hashchange", () => this.route());
    this.signOutButton.addEventListener("click", () => this.signOut());
    document.getElementById("skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.main.focus();
    });
    setInterval(refreshTimes, TICK_MILLISECONDS);
    await this.enter();
  }

  /** Asks for the token where one is needed, else shows what the address names. */
  async enter() {
    const session = await this.readSession();
    this.hasSessions = session.needed;
    show(this.signOutButton, session.needed && session.signed_in);
    if (session.needed && !session.signed_in) {
      this.askForToken();
      return;
    }
    this.signIn = null;
    this.workflowsUrl = await api.about().then(
      (about) => about.workflows_url,
      () => null,
    );
    this.route();
  }

  async readSession() {
    for (;;) {
      try {
        return await api.session();
      } catch (error) {
        if (!(error instanceof Problem)) {
          throw error;
        }
        if (!error.passing) {
          // Mounted in an app that answers itself for who may call.
          return { needed: false, signed_in: true };
        }
        this.connection("reconnecting");
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MILLISECONDS));
      }
    }
  }

  askForToken() {
    if (this.signIn) {
      return;
    }
    this.leave();
    show(this.signOutButton, false);
    this.connection(null);
    this.signIn = new SignIn(() => this.enter());
    this.show(this.signIn.node, "Sign in");
    this.signIn.focus();
  }

  async signOut() {
    try {
      await api.signOut();
    } catch (error) {
      if (!(error instanceof Problem)) {
        throw error;
      }
      // The cookie still holds: whoever leaves has to know.
      this.main.prepend(make("p", { class: "notice bad", role: "alert" }, "You are still signed in. ", error.message));
      return;
    }
    this.askForToken();
  }

  /** Shows what the address names; a view that is shown already is told of its new parameters. */
  route() {
    if (this.signIn) {
      return;
    }
    const [path, search = ""] = location.hash.replace(/^#/, "").split("?");
    const parameters = Object.fromEntries(new URLSearchParams(search));
    if (this.view?.path === path) {
      this.view.change(parameters);
      return;
    }
    this.leave();
    this.view = this.viewAt(path, parameters);
    this.view.path = path;
    this.show(this.view.node, this.view.title);
    window.scrollTo(0, 0);
    if (this.visited) {
      this.main.focus({ preventScroll: true });
    }
    this.visited = true;
  }

  viewAt(path, parameters) {
    const [, id] = BATCH.exec(path) ?? [];
    if (id !== undefined) {
      return new BatchView(this, id, parameters);
    }
    return LIST.test(path) ? new Listing(this, parameters) : new Missing(this, path);
  }

  show(node, title) {
    this.main.replaceChildren(node);
    this.title(title);
  }

  title(title) {
    const whole = `${visible(title)} · Fanout`;
    if (document.title !== whole) {
      document.title = whole;
    }
  }

  leave() {
    this.view?.end();
    this.view = null;
  }

  /** Told by every view that loads something: null where all is well. */
  problem(problem, place) {
    if (problem?.status === 401 && this.hasSessions) {
      this.askForToken();
      return;
    }
    place.replaceChildren(...(problem === null ? [] : [make("p", { class: "notice bad" }, shown(problem.message))]));
  }

  connection(word) {
    mark(this.connectionMark, "data-connection", word ?? "none");
    write(this.connectionMark, word === null ? "" : CONNECTIONS[word]);
  }

  /** Says something to those who listen instead of looking. */
  announce(text) {
    write(this.announcer, text);
  }
}

new App().start();
