/* NCCL profiler plug-in of hangdog: keeps in shared memory how far each collective of this process has come.
 *
 * NCCL calls it for each operation, each transfer of its proxy thread and each channel of its kernels. It keeps one file of
 * constant size in memory, HANGDOG_PROFILER_DIR or /dev/shm/hangdog-UID, named PID-START (START: when the process started,
 * in ticks after boot). hangdog_agent/capture/profiler_ring.py reads it, also after the process died. Nothing else is written.
 *
 * No call waits: a record's identity stands behind a sequence number that is odd while it is written, progress is counted by
 * atomic stores. What NCCL gets as a handle is a number (kind, generation, slot), so that a handle that outlives its record,
 * a fork or another process is recognised, and no pointer of NCCL's is ever followed later. HANGDOG_PROFILER=0 turns it off. */
#define _GNU_SOURCE
#include "nccl_profiler.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define VERSION 1
enum { COMMS = 64, OPS = 768, FLOWS = 512, ORDERS = 1024, STEPS = 16, STEP_BITS = 4, KEPT = 64, LOCK_TRIES = 1000 };
enum { FREE, CLAIMED, LIVE, ENDED };
enum { COLL = 1, P2P = 2 };
/* Kinds of handles. */
enum { CONTEXT = 1, OP, FLOW, STEP, KERNEL, OTHER };
static const uint64_t GENERATION = (1ULL << 40) - 1;
static const uint64_t NO_ORDER = ~0ULL;

/* The file. All numbers are little-endian; the reader has the same offsets as a table. */
struct what {
    int32_t peer; /* of a collective its root */
    uint16_t channels; /* 0: not known */
    uint8_t kind, unused;
    char func[16], datatype[12], algo[20], proto[12];
};
struct flow_counts {
    uint64_t ops, posted, ready, transmitted, done, bytes;
};
struct comm {
    uint64_t seq;
    uint32_t state;
    int32_t rank, ranks, nodes;
    uint64_t id, created, ended;
    char name[64];
    uint64_t colls, p2ps, launched, started, finished, ops_left_out, flows_left_out, plans;
    uint64_t enqueued_at, started_at, finished_at, moved_at;
    struct flow_counts sent, received;
    uint64_t orders, floor, running_plan;
    uint64_t last_seq, last_order, last_nccl_seq, last_count;
    struct what last;
} __attribute__((aligned(512)));
struct op {
    uint64_t seq;
    uint32_t state, comm;
    uint64_t order, plan, nccl_seq, count;
    uint64_t enqueued_at, launched_at, started_at, moved_at;
    uint32_t kernels_started, kernels_ended, proxies_started, proxies_ended;
    struct what what;
} __attribute__((aligned(64)));
struct flow {
    uint64_t seq;
    uint32_t state, comm;
    uint64_t order, started_at, moved_at, bytes;
    int32_t channel, peer, steps, chunk, is_send;
    uint32_t posted, ready, transmitted, done, unused;
    uint64_t op; /* its handle; of no use to a reader */
    uint8_t level[STEPS]; /* how far each step in flight is: 0 none, 1 posted, 2 ready, 3 transmitted */
} __attribute__((aligned(64)));
struct ring {
    char magic[8];
    uint32_t version, size, comms_size, ops_size, flows_size, pid;
    uint64_t started, created, comms_left_out, foreign_flows;
    char unused[4096 - 64];
    struct comm comms[COMMS];
    struct op ops[OPS];
    struct flow flows[FLOWS];
};
_Static_assert(sizeof(struct comm) == 512 && sizeof(struct op) == 192 && sizeof(struct flow) == 128, "layout");
_Static_assert(offsetof(struct ring, comms) == 4096 && offsetof(struct comm, last) == 360, "layout");
_Static_assert(offsetof(struct op, what) == 96 && offsetof(struct flow, channel) == 48, "layout");

static struct ring *mapped; /* NULL: off, not begun, or the child of a fork */
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
static uint16_t slot_of[COMMS][ORDERS]; /* slots of the operations of a communicator by order, plus one */
static uint32_t next_op, next_flow;

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)
#define ADD(place, value) __atomic_fetch_add(&(place), (value), __ATOMIC_RELAXED)

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000ULL + (uint64_t)at.tv_nsec;
}

static void copy(char *to, size_t size, const char *text) {
    size_t length = text ? strnlen(text, size - 1) : 0;
    memcpy(to, text ? text : "", length);
    memset(to + length, 0, size - length);
}

static int become(uint32_t *state, uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(state, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* The identity of a record is written between these two. */
static void write_begins(uint64_t *seq) {
    STORE(*seq, LOAD(*seq) | 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static void write_ends(uint64_t *seq) { __atomic_store_n(seq, (LOAD(*seq) | 1) + 1, __ATOMIC_RELEASE); }

static uint64_t generation(const uint64_t *seq) { return (LOAD(*seq) >> 1) & GENERATION; }
static uint64_t handle(uint64_t kind, const uint64_t *seq, uint64_t step, uint64_t slot) {
    return kind << 60 | generation(seq) << 20 | step << 16 | slot;
}
static uint64_t kind_of(uint64_t number) { return number >> 60; }
static uint64_t slot_in(uint64_t number) { return number & 0xffff; }
static int is_current(uint64_t number, const uint64_t *seq) { return (number >> 20 & GENERATION) == generation(seq); }

static struct comm *comm_of(struct ring *ring, uint64_t number) {
    struct comm *comm = &ring->comms[slot_in(number) % COMMS];
    return kind_of(number) == CONTEXT && is_current(number, &comm->seq) && LOAD(comm->state) == LIVE ? comm : NULL;
}
/* By the handle of the operation or of one of its kernels. */
static struct op *op_of(struct ring *ring, uint64_t number) {
    struct op *op = &ring->ops[slot_in(number) % OPS];
    int ours = kind_of(number) == OP || kind_of(number) == KERNEL;
    return ours && is_current(number, &op->seq) && LOAD(op->state) == LIVE ? op : NULL;
}
static struct flow *flow_of(struct ring *ring, uint64_t number) {
    struct flow *flow = &ring->flows[slot_in(number) % FLOWS];
    int ours = kind_of(number) == FLOW || kind_of(number) == STEP;
    return ours && is_current(number, &flow->seq) && LOAD(flow->state) == LIVE ? flow : NULL;
}

/* --- operations --- */

static void finish(struct ring *ring, struct op *op) {
    struct comm *comm = &ring->comms[op->comm % COMMS];
    int began = LOAD(op->kernels_started) != 0;
    if (!become(&op->state, LIVE, FREE)) return; /* another thread saw it first */
    if (!began) ADD(comm->started, 1);
    ADD(comm->finished, 1);
    STORE(comm->finished_at, now());
}

/* Finished as far as NCCL's own events say. What they leave open, the next kernel of the communicator closes. */
static void finish_if_complete(struct ring *ring, struct op *op) {
    uint32_t channels = op->what.channels;
    if (channels && LOAD(op->launched_at) && LOAD(op->kernels_ended) >= channels &&
        LOAD(op->proxies_started) == LOAD(op->proxies_ended))
        finish(ring, op);
}

/* The kernels of one communicator run one after another, a plan each. So when one begins, those before it are over: this ends
 * operations whose events do not add up (NCCL 2.28 says more channels of a send than it starts). */
static void finish_older(struct ring *ring, struct comm *comm, const struct op *running) {
    uint64_t plan = running->plan, seen = LOAD(comm->running_plan);
    do {
        if (seen >= plan) return;
    } while (!__atomic_compare_exchange_n(&comm->running_plan, &seen, plan, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    uint64_t order = LOAD(comm->floor);
    for (; order < running->order; order++) {
        uint16_t slot = LOAD(slot_of[comm - ring->comms][order % ORDERS]);
        struct op *op = slot ? &ring->ops[slot - 1] : NULL;
        if (!op || LOAD(op->state) != LIVE || op->order != order || &ring->comms[op->comm % COMMS] != comm) continue;
        if (op->plan >= plan) break;
        finish(ring, op);
    }
    STORE(comm->floor, order);
}

static void describe(struct what *what, const struct nccl_event *event, int kind, int knows_channels) {
    const struct nccl_coll *coll = &event->coll;
    const struct nccl_p2p *p2p = &event->p2p;
    const char *datatype = kind == COLL ? coll->datatype : p2p->datatype;
    if (datatype && !strncmp(datatype, "nccl", 4)) datatype += 4;
    what->kind = (uint8_t)kind;
    what->peer = kind == COLL ? coll->root : p2p->peer;
    what->channels = kind == COLL ? coll->channels : knows_channels ? p2p->channels : 0;
    copy(what->func, sizeof what->func, kind == COLL ? coll->func : p2p->func);
    copy(what->datatype, sizeof what->datatype, datatype);
    copy(what->algo, sizeof what->algo, kind == COLL ? coll->algo : "");
    copy(what->proto, sizeof what->proto, kind == COLL ? coll->proto : "");
}

static uint64_t start_op(struct ring *ring, struct comm *comm, const struct nccl_event *event, int kind, int knows_channels) {
    uint64_t at = now(), order = ADD(comm->orders, 1);
    uint64_t seq = kind == COLL ? event->coll.seq : 0, count = kind == COLL ? event->coll.count : event->p2p.count;
    struct op *op = NULL;
    if (kind == COLL) ADD(comm->colls, 1);
    else ADD(comm->p2ps, 1);
    STORE(comm->enqueued_at, at);
    for (int tried = 0; tried < OPS && !op; tried++) {
        struct op *candidate = &ring->ops[ADD(next_op, 1) % OPS];
        if (LOAD(candidate->state) == FREE && become(&candidate->state, FREE, CLAIMED)) op = candidate;
    }
    write_begins(&comm->last_seq);
    comm->last_order = order;
    comm->last_nccl_seq = seq;
    comm->last_count = count;
    describe(&comm->last, event, kind, knows_channels);
    if (!op) {
        write_ends(&comm->last_seq);
        ADD(comm->ops_left_out, 1);
        return 0;
    }
    write_begins(&op->seq);
    op->comm = (uint32_t)(comm - ring->comms);
    op->order = order;
    op->plan = LOAD(comm->plans);
    op->nccl_seq = seq;
    op->count = count;
    op->enqueued_at = op->moved_at = at;
    op->launched_at = op->started_at = 0;
    op->kernels_started = op->kernels_ended = op->proxies_started = op->proxies_ended = 0;
    op->what = comm->last;
    write_ends(&op->seq);
    write_ends(&comm->last_seq);
    STORE(slot_of[op->comm][order % ORDERS], (uint16_t)(op - ring->ops + 1));
    __atomic_store_n(&op->state, LIVE, __ATOMIC_RELEASE);
    return handle(OP, &op->seq, 0, (uint64_t)(op - ring->ops));
}

static uint64_t start_kernel(struct ring *ring, struct op *op) {
    uint64_t at = now();
    struct comm *comm = &ring->comms[op->comm % COMMS];
    if (!ADD(op->kernels_started, 1)) {
        STORE(op->started_at, at);
        STORE(comm->started_at, at);
        ADD(comm->started, 1);
        finish_older(ring, comm, op);
    }
    STORE(op->moved_at, at);
    return handle(KERNEL, &op->seq, 0, (uint64_t)(op - ring->ops));
}

/* --- what the proxy thread moves --- */

static struct flow_counts *counts_of(struct comm *comm, const struct flow *flow) {
    return flow->is_send ? &comm->sent : &comm->received;
}

static uint64_t start_flow(struct ring *ring, struct comm *comm, const struct nccl_event *event) {
    const struct nccl_proxy_op *proxy = &event->proxy_op;
    if ((uint32_t)proxy->pid != ring->pid) { /* PXN: done for another process, whose handles mean nothing here */
        ADD(ring->foreign_flows, 1);
        return 0;
    }
    struct op *op = op_of(ring, (uint64_t)event->parent);
    struct flow *flow = NULL;
    if (op) ADD(op->proxies_started, 1);
    for (int tried = 0; tried < FLOWS && !flow; tried++) {
        struct flow *candidate = &ring->flows[ADD(next_flow, 1) % FLOWS];
        if (LOAD(candidate->state) == FREE && become(&candidate->state, FREE, CLAIMED)) flow = candidate;
    }
    if (!flow) {
        if (op) ADD(op->proxies_ended, 1); /* it is not seen to end */
        ADD(comm->flows_left_out, 1);
        return 0;
    }
    write_begins(&flow->seq);
    flow->comm = (uint32_t)(comm - ring->comms);
    flow->order = op ? op->order : NO_ORDER;
    flow->op = op ? (uint64_t)event->parent : 0;
    flow->started_at = flow->moved_at = now();
    flow->bytes = 0;
    flow->channel = proxy->channel;
    flow->peer = proxy->peer;
    flow->steps = proxy->steps;
    flow->chunk = proxy->chunk;
    flow->is_send = !!proxy->is_send;
    flow->posted = flow->ready = flow->transmitted = flow->done = 0;
    memset(flow->level, 0, sizeof flow->level);
    write_ends(&flow->seq);
    __atomic_store_n(&flow->state, LIVE, __ATOMIC_RELEASE);
    ADD(counts_of(comm, flow)->ops, 1);
    return handle(FLOW, &flow->seq, 0, (uint64_t)(flow - ring->flows));
}

static void end_flow(struct ring *ring, struct flow *flow) {
    struct op *op = op_of(ring, flow->op);
    if (!become(&flow->state, LIVE, FREE) || !op) return;
    ADD(op->proxies_ended, 1);
    STORE(op->moved_at, now());
    finish_if_complete(ring, op);
}

/* One thread moves a flow. It says the same of a step again and again while it waits: only what is new is counted. */
static void move(struct ring *ring, struct flow *flow, uint64_t step, int level, size_t size) {
    int before = flow->level[step];
    if (before >= level) return;
    struct comm *comm = &ring->comms[flow->comm % COMMS];
    struct flow_counts *counts = counts_of(comm, flow);
    uint64_t at = now();
    if (before < 1) STORE(flow->posted, flow->posted + 1), ADD(counts->posted, 1);
    if (before < 2 && level >= 2) STORE(flow->ready, flow->ready + 1), ADD(counts->ready, 1);
    if (before < 3 && level >= 3) {
        STORE(flow->transmitted, flow->transmitted + 1), ADD(counts->transmitted, 1);
        STORE(flow->bytes, flow->bytes + size), ADD(counts->bytes, size);
    }
    flow->level[step] = (uint8_t)level;
    STORE(flow->moved_at, at);
    STORE(comm->moved_at, at);
}

static void end_step(struct ring *ring, struct flow *flow, uint64_t step) {
    struct comm *comm = &ring->comms[flow->comm % COMMS];
    if (!flow->level[step]) return;
    move(ring, flow, step, 3, 0);
    flow->level[step] = 0;
    STORE(flow->done, flow->done + 1);
    ADD(counts_of(comm, flow)->done, 1);
    STORE(flow->moved_at, now());
}

/* --- the file --- */

static uint64_t process_started(void) {
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (length <= 0) return 0;
    text[length] = 0;
    char *at = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static int open_folder(void) {
    char path[4096];
    const char *chosen = getenv("HANGDOG_PROFILER_DIR");
    struct stat found;
    if (chosen && *chosen) snprintf(path, sizeof path, "%s", chosen);
    else snprintf(path, sizeof path, "/dev/shm/hangdog-%u", (unsigned)geteuid());
    if (mkdir(path, 0700) && errno != EEXIST) return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    /* a folder that others made or may write to could make us write where they choose */
    if (!fstat(fd, &found) && found.st_uid == geteuid() && !(found.st_mode & 022)) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* Rings of ended processes: the latest are evidence, more only fill memory. Whoever lives holds a lock on its own, in whatever
   container, so one that can be locked is nobody's. */
static int held = -1;

static uint64_t ended_at(int folder, const char *name) {
    struct stat found;
    size_t digits = strspn(name, "0123456789");
    if (!digits || name[digits] != '-' || !name[digits + 1] || name[digits + 1 + strspn(name + digits + 1, "0123456789")])
        return 0;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    int nobodys = !flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &found);
    close(fd);
    return nobodys ? (uint64_t)found.st_mtim.tv_sec * 1000000000 + (uint64_t)found.st_mtim.tv_nsec : 0;
}

static void remove_old(int folder) {
    uint64_t latest[KEPT] = {0}, at;
    int copied = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *files = copied < 0 ? NULL : fdopendir(copied);
    if (!files) {
        if (copied >= 0) close(copied);
        return;
    }
    for (struct dirent *file; (file = readdir(files));) {
        if (!(at = ended_at(folder, file->d_name)) || at <= latest[KEPT - 1]) continue;
        int place = KEPT - 1;
        for (; place && latest[place - 1] < at; place--) latest[place] = latest[place - 1];
        latest[place] = at;
    }
    rewinddir(files);
    for (struct dirent *file; (file = readdir(files));)
        if ((at = ended_at(folder, file->d_name)) && at < latest[KEPT - 1]) unlinkat(folder, file->d_name, 0);
    closedir(files);
}

static struct ring *create(void) {
    char name[64];
    uint64_t started = process_started();
    int folder = open_folder(), flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    if (folder < 0) return NULL;
    remove_old(folder);
    snprintf(name, sizeof name, "%d-%llu", (int)getpid(), (unsigned long long)started);
    int fd = openat(folder, name, flags, 0600);
    if (fd < 0 && errno == EEXIST && !unlinkat(folder, name, 0)) /* this process's own, of a plug-in loaded before */
        fd = openat(folder, name, flags, 0600);
    void *place = MAP_FAILED;
    /* another that starts may try this very lock, for microseconds: unheld, the ring would count as an ended process's */
    for (int tries = 0; fd >= 0 && tries < LOCK_TRIES && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK; tries++)
        sched_yield();
    /* a full /dev/shm must fail here: later it would kill the trainer */
    if (fd >= 0 && !posix_fallocate(fd, 0, sizeof(struct ring)))
        place = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0 && place == MAP_FAILED) {
        unlinkat(folder, name, 0);
        close(fd);
    }
    close(folder);
    if (place == MAP_FAILED) return NULL;
    held = fd; /* open as long as the ring is mapped: the lock says that its process lives */
    struct ring *ring = place;
    ring->version = VERSION;
    ring->size = sizeof *ring;
    ring->comms_size = COMMS;
    ring->ops_size = OPS;
    ring->flows_size = FLOWS;
    ring->pid = (uint32_t)getpid();
    ring->started = started;
    ring->created = now();
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(ring->magic, "HDNCCLPR", 8); /* last: with it the file is whole */
    return ring;
}

/* A child shares the memory of its parent, but not its communicators: it must write into a ring of its own, or none. */
static void forked(void) {
    STORE(mapped, NULL);
    if (held >= 0) close(held);
    held = -1;
    pthread_mutex_init(&beginning, NULL);
}

__attribute__((constructor)) static void loaded(void) { pthread_atfork(NULL, NULL, forked); }

/* NCCL unloads it after its last communicator. At the process's end communicators are left, and threads may still write. */
__attribute__((destructor)) static void unloaded(void) {
    struct ring *ring = mapped;
    for (int at = 0; ring && at < COMMS; at++)
        if (LOAD(ring->comms[at].state) == LIVE) return;
    STORE(mapped, NULL);
    if (ring) munmap(ring, sizeof *ring);
    if (ring && held >= 0) close(held);
}

/* --- what NCCL calls --- */

static int begin(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks, int rank, nccl_logger log) {
    const char *wanted = getenv("HANGDOG_PROFILER");
    *context = NULL;
    *mask = 0;
    if (wanted && !strcmp(wanted, "0")) return NCCL_SUCCESS;
    pthread_mutex_lock(&beginning);
    if (!mapped) STORE(mapped, create());
    struct ring *ring = mapped;
    struct comm *comm = NULL;
    for (int state = FREE; ring && !comm && state <= ENDED; state += ENDED) /* unused places first, then the oldest ones' */
        for (int at = 0; at < COMMS; at++)
            if (ring->comms[at].state == (uint32_t)state && (!comm || ring->comms[at].ended < comm->ended))
                comm = &ring->comms[at];
    if (comm) {
        STORE(comm->state, CLAIMED);
        uint64_t last_seq = comm->last_seq;
        write_begins(&comm->seq);
        memset((char *)comm + sizeof comm->seq, 0, sizeof *comm - sizeof comm->seq);
        comm->last_seq = last_seq & ~1ULL;
        comm->id = id;
        comm->rank = rank;
        comm->ranks = ranks;
        comm->nodes = nodes;
        comm->created = now();
        copy(comm->name, sizeof comm->name, name);
        write_ends(&comm->seq);
        memset(slot_of[comm - ring->comms], 0, sizeof slot_of[0]);
        __atomic_store_n(&comm->state, LIVE, __ATOMIC_RELEASE);
        *context = (void *)handle(CONTEXT, &comm->seq, 0, (uint64_t)(comm - ring->comms));
    } else if (ring) {
        ADD(ring->comms_left_out, 1);
    }
    /* the mask is NCCL's for all communicators; no ProxyCtrl: it ticks all the time while the proxy has nothing to do */
    if (ring) *mask = EVENT_COLL | EVENT_P2P | EVENT_PROXY_OP | EVENT_PROXY_STEP | EVENT_KERNEL_CHANNEL;
    else if (log) log(LOG_INFO_LEVEL, LOG_INIT, "hangdog", 0, "hangdog's profiler keeps nothing: %s", strerror(errno));
    pthread_mutex_unlock(&beginning);
    return NCCL_SUCCESS;
}

static int init_v4(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks, int rank, nccl_logger log) {
    return begin(context, mask, name, id, nodes, ranks, rank, log);
}
static int init_v5(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, nccl_logger log) {
    return begin(context, mask, name, id, nodes, ranks, rank, log);
}

static int start(void *context, void **answer, struct nccl_event *event, uint64_t type, int knows_channels) {
    struct ring *ring = LOAD(mapped);
    struct comm *comm = ring ? comm_of(ring, (uint64_t)context) : NULL;
    uint64_t made = 0;
    struct op *op;
    struct flow *flow;
    *answer = NULL; /* NCCL reads it whatever we answer */
    if (!comm) return NCCL_SUCCESS;
    switch (type) {
    case EVENT_GROUP: /* a plan: all that one kernel does. Up to 2.27 NCCL tells nothing more where this has no handle. */
        ADD(comm->plans, 1);
        made = (uint64_t)OTHER << 60;
        break;
    case EVENT_COLL: made = start_op(ring, comm, event, COLL, 1); break;
    case EVENT_P2P: made = start_op(ring, comm, event, P2P, knows_channels); break;
    case EVENT_PROXY_OP: made = start_flow(ring, comm, event); break;
    case EVENT_PROXY_STEP:
        if (!(flow = flow_of(ring, (uint64_t)event->parent))) break;
        uint64_t step = (uint64_t)event->proxy_step.step % STEPS;
        move(ring, flow, step, 1, 0);
        made = handle(STEP, &flow->seq, step, (uint64_t)(flow - ring->flows));
        break;
    case EVENT_KERNEL_CHANNEL:
        if ((op = op_of(ring, (uint64_t)event->parent))) made = start_kernel(ring, op);
        break;
    default: break;
    }
    *answer = (void *)made;
    return NCCL_SUCCESS;
}
static int start_v4(void *context, void **answer, struct nccl_event *event) {
    return start(context, answer, event, event->type.v4, 0);
}
static int start_v5(void *context, void **answer, struct nccl_event *event) {
    return start(context, answer, event, event->type.v5, 1);
}

static int stop(void *number) {
    struct ring *ring = LOAD(mapped);
    struct op *op;
    struct flow *flow;
    if (!ring) return NCCL_SUCCESS;
    switch (kind_of((uint64_t)number)) {
    case OP: /* the host has launched it; the GPU has not finished it */
        if (!(op = op_of(ring, (uint64_t)number))) break;
        STORE(op->launched_at, now());
        ADD(ring->comms[op->comm % COMMS].launched, 1);
        finish_if_complete(ring, op);
        break;
    case KERNEL:
        if (!(op = op_of(ring, (uint64_t)number))) break;
        ADD(op->kernels_ended, 1);
        STORE(op->moved_at, now());
        finish_if_complete(ring, op);
        break;
    case FLOW:
        if ((flow = flow_of(ring, (uint64_t)number))) end_flow(ring, flow);
        break;
    case STEP:
        if ((flow = flow_of(ring, (uint64_t)number))) end_step(ring, flow, (uint64_t)number >> 16 & (STEPS - 1));
        break;
    default: break;
    }
    return NCCL_SUCCESS;
}

static int record(void *number, int state, union nccl_state_arguments *arguments) {
    struct ring *ring = LOAD(mapped);
    struct flow *flow;
    if (!ring || kind_of((uint64_t)number) != STEP || !(flow = flow_of(ring, (uint64_t)number))) return NCCL_SUCCESS;
    int level = state == STATE_SEND_PEER_WAIT || state == STATE_RECV_FLUSH_WAIT ? 2
                : state == STATE_SEND_WAIT || state == STATE_RECV_GPU_WAIT     ? 3
                                                                               : 1;
    move(ring, flow, (uint64_t)number >> 16 & (STEPS - 1), level, arguments ? arguments->proxy_step.size : 0);
    return NCCL_SUCCESS;
}

/* Also after an abort. What was in flight stays as it was, for whoever asks why; its places are free again. */
static int finalize(void *context) {
    struct ring *ring = LOAD(mapped);
    struct comm *comm = ring ? comm_of(ring, (uint64_t)context) : NULL;
    if (!comm) return NCCL_SUCCESS;
    uint32_t own = (uint32_t)(comm - ring->comms);
    STORE(comm->ended, now());
    __atomic_store_n(&comm->state, ENDED, __ATOMIC_RELEASE);
    for (int at = 0; at < OPS; at++)
        if (LOAD(ring->ops[at].state) == LIVE && ring->ops[at].comm == own) become(&ring->ops[at].state, LIVE, FREE);
    for (int at = 0; at < FLOWS; at++)
        if (LOAD(ring->flows[at].state) == LIVE && ring->flows[at].comm == own) become(&ring->flows[at].state, LIVE, FREE);
    return NCCL_SUCCESS;
}

EXPORTED struct nccl_profiler_v4 ncclProfiler_v4 = {"hangdog", init_v4, start_v4, stop, record, finalize};
EXPORTED struct nccl_profiler_v5 ncclProfiler_v5 = {"hangdog", init_v5, start_v5, stop, record, finalize};
EXPORTED struct nccl_profiler_v5 ncclProfiler_v6 = {"hangdog", init_v5, start_v5, stop, record, finalize};
