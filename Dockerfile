# The worker, the command line and `migrate` in one image: `python worker.py`, `python starter.py …`.
FROM python:3.11.16-slim-trixie

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin fanout
WORKDIR /app

# What the package is made of; its dependencies are installed anew only when one of these changes.
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY fanout/ fanout/
# Editable, so that there is one copy of the code: worker.py beside it and the `fanout` command run the same.
RUN pip install -c constraints.txt -e ".[cli,http,process,documents,otel]"

COPY activities/ activities/
COPY workflows/ workflows/
COPY examples/ examples/
COPY worker.py starter.py ./

USER fanout
STOPSIGNAL SIGTERM
CMD ["python", "worker.py"]
