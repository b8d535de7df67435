# Two images from one tree:
#   docker build --target agent  -t hangdog-agent .     for every machine: docker run --pid=host --cap-add=SYS_PTRACE ...
#   docker build --target server -t hangdog-server .    one for each cluster
FROM python:3.11-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY models models
COPY proto proto
COPY agent agent
COPY server server
COPY cli cli
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# The agent lives beside training: nothing but what it imports, no numpy, no server.
FROM python:3.11-slim AS agent
COPY requirements/agent.txt /requirements.txt
RUN pip install --no-cache-dir -r /requirements.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl
ENTRYPOINT ["hangdog-agent"]

FROM python:3.11-slim AS server
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[server,notify]" \
    && useradd --system --create-home --home-dir /var/lib/hangdog hangdog
USER hangdog
VOLUME /var/lib/hangdog
EXPOSE 7411
# `hangdog certs init` makes its certificate: docker run -v $PWD/hangdog-ca/server:/etc/hangdog/tls:ro ... (docs/security.md)
ENV HANGDOG_TLS=/etc/hangdog/tls
ENTRYPOINT ["hangdog", "server", "--listen", "0.0.0.0:7411", "--store", "/var/lib/hangdog/incidents.db"]
