"""The agent: one per machine; discovers training processes, captures them on demand, and never makes a hang worse."""

import os

# gRPC reads this when it is first imported. By default its handlers run in every child that is forked, and crash some of them
# before their program starts: in one of 25, where other threads speak gRPC. A program that takes another user is forked.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
