/* What NCCL and a profiler plug-in pass each other: only the parts that hangdog's plug-in reads.
 *
 * Facts of the interface, written anew from NCCL's headers (https://github.com/NVIDIA/nccl; BSD-3-Clause, later Apache-2.0):
 *   v4  ext-profiler/example/nccl/profiler_v4.h             NCCL 2.27 (2.26 knows v3 and older only)
 *   v5  src/include/plugin/profiler/profiler_v5.h           NCCL 2.28
 *   v6  src/include/plugin/profiler/profiler_v6.h           NCCL 2.29 on
 *   states and event types: src/include/plugin/nccl_profiler.h
 * Each NCCL looks for the newest version it knows and then for older ones. The offsets asserted below were compared with the
 * debug information of libnccl.so.2 in the wheels nvidia-nccl-cu12 2.27.7 (v4), 2.28.9 (v5), 2.30.7 and 2.32.3 (v6). */
#ifndef HANGDOG_NCCL_PROFILER_H
#define HANGDOG_NCCL_PROFILER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { NCCL_SUCCESS = 0 };

/* Event types are bits of the mask that `init` answers. */
enum {
    EVENT_GROUP = 1 << 0,
    EVENT_COLL = 1 << 1,
    EVENT_P2P = 1 << 2,
    EVENT_PROXY_OP = 1 << 3,
    EVENT_PROXY_STEP = 1 << 4,
    EVENT_KERNEL_CHANNEL = 1 << 6,
    EVENT_GROUP_API = 1 << 8,
    EVENT_COLL_API = 1 << 9,
    EVENT_P2P_API = 1 << 10,
};

/* States of a proxy step, as recordEventState names them. A sender's: waits for the GPU's data, waits for the receiver's
 * credit, waits for the network. A receiver's: waits for the network, waits for a flush, waits for the GPU to take it. */
enum {
    STATE_SEND_GPU_WAIT = 8,
    STATE_SEND_PEER_WAIT = 20,
    STATE_SEND_WAIT = 9,
    STATE_RECV_WAIT = 10,
    STATE_RECV_FLUSH_WAIT = 11,
    STATE_RECV_GPU_WAIT = 12,
};

enum { LOG_INFO_LEVEL = 3, LOG_INIT = 1 };
typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct nccl_coll {
    uint64_t seq;
    const char *func;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *datatype;
    uint8_t channels;
    uint8_t warps;
    const char *algo;
    const char *proto;
};

struct nccl_p2p {
    const char *func;
    void *buffer;
    const char *datatype;
    size_t count;
    int peer;
    uint8_t channels; /* NCCL 2.28 on leaves it as it was where it calls a plug-in of v4: never read there */
};

struct nccl_proxy_op {
    pid_t pid; /* who enqueued it; another process with PXN */
    uint8_t channel;
    int peer;
    int steps;
    int chunk;
    int is_send;
};

/* `type` is one byte in v4 and eight from v5 on: all else stands at the same offsets. */
struct nccl_event {
    union {
        uint8_t v4;
        uint64_t v5;
    } type;
    void *parent;
    int rank;
    union {
        struct nccl_coll coll;
        struct nccl_p2p p2p;
        struct nccl_proxy_op proxy_op;
        struct { int step; } proxy_step;
        struct { uint8_t channel; uint64_t gpu_time; } kernel;
    };
};

union nccl_state_arguments {
    struct { size_t size; } proxy_step;
};

struct nccl_profiler_v4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks, int rank, nccl_logger log);
    int (*start)(void *context, void **handle, struct nccl_event *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, union nccl_state_arguments *arguments);
    int (*finalize)(void *context);
};

/* v5 and v6 alike. */
struct nccl_profiler_v5 {
    const char *name;
    int (*init)(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, nccl_logger log);
    int (*start)(void *context, void **handle, struct nccl_event *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, union nccl_state_arguments *arguments);
    int (*finalize)(void *context);
};

_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "handles hold 64 bits");
_Static_assert(offsetof(struct nccl_event, parent) == 8 && offsetof(struct nccl_event, rank) == 16, "event");
_Static_assert(offsetof(struct nccl_event, coll) == 24, "the union is aligned to eight");
_Static_assert(offsetof(struct nccl_coll, count) == 32 && offsetof(struct nccl_coll, root) == 40, "coll");
_Static_assert(offsetof(struct nccl_coll, datatype) == 48 && offsetof(struct nccl_coll, channels) == 56, "coll");
_Static_assert(offsetof(struct nccl_coll, algo) == 64 && offsetof(struct nccl_coll, proto) == 72, "coll");
_Static_assert(offsetof(struct nccl_p2p, count) == 24 && offsetof(struct nccl_p2p, peer) == 32, "p2p");
_Static_assert(offsetof(struct nccl_p2p, channels) == 36, "p2p");
_Static_assert(offsetof(struct nccl_proxy_op, channel) == 4 && offsetof(struct nccl_proxy_op, peer) == 8, "proxy op");
_Static_assert(offsetof(struct nccl_proxy_op, is_send) == 20, "proxy op");

#endif
