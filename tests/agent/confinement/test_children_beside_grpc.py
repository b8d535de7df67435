"""Programs that run as another user are forked: none crashes before it starts because this process speaks gRPC meanwhile."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as another user")

#: Prints how many of 200 programs did not end well, and why the last did not.
BUSY = """
import hangdog_agent
import threading
from concurrent.futures import ThreadPoolExecutor
import grpc
from hangdog_agent.confinement.confined_children import Child
from hangdog_agent.confinement.credentials import Credentials
from hangdog_agent.confinement.subprocesses import run
from hangdog_proto.generated import hangdog_pb2 as pb, hangdog_pb2_grpc as rpc

class Talks(rpc.AgentsServicer):
    def Connect(self, messages, context):
        for _ in messages:
            yield pb.ToAgent()

server = grpc.server(ThreadPoolExecutor(8))
rpc.add_AgentsServicer_to_server(Talks(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()

def talk():
    while True:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for _ in rpc.AgentsStub(channel).Connect(iter([pb.FromAgent()] * 50)):
                pass

for _ in range(3):
    threading.Thread(target=talk, daemon=True).start()
another = Child(who=Credentials(65534, 65534, (65534,)))
with ThreadPoolExecutor(4) as hands:
    ends = list(hands.map(lambda _: run(("/bin/true",), 30.0, 64, child=another), range(200)))
bad = [end for end in ends if end.status != 0]
print(len(bad), bad[-1:], flush=True)
import os
os._exit(0)
"""


def test_programs_of_another_user_start_while_threads_speak_grpc() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GRPC")}
    program = (sys.executable, "-c", BUSY)
    done = subprocess.run(program, check=False, env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 []\n", done.stderr[-2000:]
