# Three images from one tree:
#   docker build --target agent  -t hangdog-agent .     for every machine: docker run --pid=host --cap-add=SYS_PTRACE ...
#   docker build --target tester -t hangdog-tester .    for machines that are out of use: an agent that can test them
#   docker build --target server -t hangdog-server .    one for each cluster
# The base is named by its digest: the index of all platforms of python:3.11-slim as pushed in August 2026 (3.11.16).
# `make base-image` asks the registry for the newest and writes it here.
ARG BASE=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
FROM ${BASE} AS wheel
COPY requirements/build.txt /requirements.txt
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r /requirements.txt
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY models models
COPY proto proto
COPY agent agent
COPY server server
COPY cli cli
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

# The agent lives beside training: nothing but what it imports, no numpy, no server.
FROM ${BASE} AS agent
COPY requirements/agent.txt /requirements.txt
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r /requirements.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps --no-index /wheels/*.whl
COPY requirements/agent.cdx.json /usr/share/sbom/hangdog-agent.cdx.json
ENTRYPOINT ["hangdog-agent"]

# The agent with what the tests of a machine need: torch of its lock, for CUDA and for the CPU. It has several GB, and takes
# the agent's place on a machine for as long as that is tested (docs/deploy.md). DCGM is no Python package: its client comes
# from the machine, and without it that one test is skipped.
FROM ${BASE} AS tester
COPY requirements/tester.txt /requirements.txt
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r /requirements.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps --no-index /wheels/*.whl
COPY requirements/tester.cdx.json /usr/share/sbom/hangdog-tester.cdx.json
ENTRYPOINT ["hangdog-agent"]

FROM ${BASE} AS server
COPY requirements/server.txt /requirements.txt
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r /requirements.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && useradd --system --create-home --home-dir /var/lib/hangdog hangdog
COPY requirements/server.cdx.json /usr/share/sbom/hangdog-server.cdx.json
USER hangdog
VOLUME /var/lib/hangdog
EXPOSE 7411
# `hangdog certs init` makes its certificate: docker run -v $PWD/hangdog-ca/server:/etc/hangdog/tls:ro ... (docs/security.md)
ENV HANGDOG_TLS=/etc/hangdog/tls
ENTRYPOINT ["hangdog", "server", "--listen", "0.0.0.0:7411", "--store", "/var/lib/hangdog/incidents.db"]
