/* Stands where NCCL stands: loads a profiler plug-in as NCCL does and calls it as a job of two ranks would have it called.
 *
 *     nccl_stand_in PLUGIN VERSION SCENARIO [ARGUMENT...]
 *
 * It declares the interface for itself, from NCCL's headers (plugins/profiler/example/nccl/profiler_v4.h, _v5.h, _v6.h of
 * https://github.com/NVIDIA/nccl), so that a slip in the plug-in's own declarations shows. Scenarios are the functions below. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAYLOAD                                                                                                            \
    union {                                                                                                                \
        struct { bool captured; int depth; } group_api;                                                                    \
        struct {                                                                                                           \
            uint64_t seqNumber; const char *func; void const *sendBuff; void *recvBuff; size_t count; int root;            \
            const char *datatype; uint8_t nChannels; uint8_t nWarps; const char *algo; const char *proto; void *parent;    \
        } coll;                                                                                                            \
        struct {                                                                                                           \
            const char *func; void *buff; const char *datatype; size_t count; int peer; uint8_t nChannels; void *parent;   \
        } p2p;                                                                                                             \
        struct { pid_t pid; uint8_t channelId; int peer; int nSteps; int chunkSize; int isSend; } proxyOp;                 \
        struct { int step; } proxyStep;                                                                                    \
        struct { uint8_t channelId; uint64_t pTimer; } kernelCh;                                                           \
    }
typedef struct { uint8_t type; void *parentObj; int rank; PAYLOAD; } event_v4;
typedef struct { uint64_t type; void *parentObj; int rank; PAYLOAD; } event_v5;
typedef union { struct { size_t transSize; } proxyStep; struct { uint64_t pTimer; } kernelCh; } state_args;
typedef void (*logger)(int, unsigned long, const char *, int, const char *, ...);
typedef struct {
    const char *name;
    void *init;
    int (*start)(void *, void **, void *);
    int (*stop)(void *);
    int (*record)(void *, int, state_args *);
    int (*finalize)(void *);
} plugin_table;
typedef int (*init_v4)(void **, int *, const char *, uint64_t, int, int, int, logger);
typedef int (*init_v5)(void **, uint64_t, int *, const char *, int, int, int, logger);

enum { GROUP = 1, COLL = 2, P2P = 4, PROXY_OP = 8, PROXY_STEP = 16, KERNEL = 64, COLL_API = 512 };
enum { SEND_GPU = 8, SEND_PEER = 20, SEND_WAIT = 9, RECV_WAIT = 10, RECV_FLUSH = 11, RECV_GPU = 12, KERNEL_STOP = 22 };
enum { CHANNELS = 2, STEPS = 4 };

static plugin_table *plugin;
static int version, rank_here, mask;
static const char *plugin_path;

static void load(void) {
    char name[32];
    snprintf(name, sizeof name, "ncclProfiler_v%d", version);
    void *library = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
    plugin = library ? dlsym(library, name) : NULL;
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
}

static void *communicator(uint64_t id, const char *name, int ranks) {
    void *context = NULL;
    int failed = version == 4 ? ((init_v4)plugin->init)(&context, &mask, name, id, 2, ranks, rank_here, NULL)
                              : ((init_v5)plugin->init)(&context, id, &mask, name, 2, ranks, rank_here, NULL);
    if (failed) exit(3);
    return context;
}

/* NCCL asks the mask before it tells. */
static void *start(void *context, event_v5 *event) {
    void *handle = (void *)0x5a5a;
    if (!(mask & event->type) && event->type != GROUP && event->type != COLL_API) return NULL;
    if (!mask) return NULL;
    if (version == 4) {
        event_v4 old;
        memset(&old, 0xee, sizeof old); /* NCCL leaves there whatever was */
        old.type = (uint8_t)event->type;
        old.parentObj = event->type == COLL ? event->coll.parent : event->type == P2P ? event->p2p.parent : event->parentObj;
        old.rank = event->rank;
        memcpy(&old.coll, &event->coll, sizeof old.coll);
        if (event->type == P2P) old.p2p.nChannels = 0xee;
        plugin->start(context, &handle, &old);
    } else {
        plugin->start(context, &handle, event);
    }
    if (handle == (void *)0x5a5a) exit(7); /* NCCL would go on with what stood there */
    return handle;
}

static void stop(void *handle) {
    if (handle) plugin->stop(handle);
}

static void record(void *handle, int state, size_t size) {
    state_args args = {.proxyStep = {size}};
    if (handle) plugin->record(handle, state, &args);
}

static void *group(void *context) { return start(context, &(event_v5){.type = GROUP}); }

static void *coll(void *context, void *parent, uint64_t seq, size_t count, int root) {
    void *api = start(context, &(event_v5){.type = COLL_API, .rank = rank_here});
    event_v5 event = {.type = COLL, .parentObj = api, .rank = rank_here,
                      .coll = {seq, "AllReduce", NULL, NULL, count, root, "ncclFloat32", CHANNELS, 16, "RING", "SIMPLE", parent}};
    void *made = start(context, &event);
    stop(api);
    return made;
}

static void *p2p(void *context, void *parent, const char *function, int peer, int channels) {
    event_v5 event = {.type = P2P, .rank = rank_here,
                      .p2p = {function, NULL, "ncclBfloat16", 512, peer, (uint8_t)channels, parent}};
    return start(context, &event);
}

static void *kernel(void *context, void *op, int channel) {
    return start(context, &(event_v5){.type = KERNEL, .parentObj = op, .kernelCh = {(uint8_t)channel, 1}});
}

static void end_kernel(void *handle) {
    record(handle, KERNEL_STOP, 1);
    stop(handle);
}

static void *proxy(void *context, void *op, int channel, int send, pid_t pid) {
    event_v5 event = {.type = PROXY_OP, .parentObj = op, .rank = rank_here,
                      .proxyOp = {pid, (uint8_t)channel, 1 - rank_here, STEPS, 4096, send}};
    return start(context, &event);
}

static void *step(void *context, void *flow, int number) {
    return start(context, &(event_v5){.type = PROXY_STEP, .parentObj = flow, .rank = rank_here, .proxyStep = {number}});
}

/* Moves a step to a level: 1 posted, 2 ready, 3 transmitted, 4 done. It says again what it waits for, as NCCL does. */
static void move(void *handle, int send, int level) {
    record(handle, send ? SEND_GPU : RECV_WAIT, 0);
    for (int again = 0; level > 1 && again < 3; again++) record(handle, send ? SEND_PEER : RECV_FLUSH, 100);
    if (level > 2) record(handle, send ? SEND_WAIT : RECV_GPU, 100);
    if (level > 3) stop(handle);
}

/* All of one collective from its begin to its end. */
static void whole(void *context, uint64_t seq) {
    void *plan = group(context), *op = coll(context, plan, seq, seq * 3 + 1, 0), *flows[CHANNELS][2], *kernels[CHANNELS];
    stop(op);
    stop(plan);
    for (int channel = 0; channel < CHANNELS; channel++) {
        kernels[channel] = kernel(context, op, channel);
        for (int send = 0; send < 2; send++) flows[channel][send] = proxy(context, op, channel, send, getpid());
    }
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int send = 0; send < 2; send++) {
            for (int number = 0; number < STEPS; number++) move(step(context, flows[channel][send], number), send, 4);
            stop(flows[channel][send]);
        }
    for (int channel = 0; channel < CHANNELS; channel++) end_kernel(kernels[channel]);
}

/* One that stays: of four steps to send three are posted, two ready, one transmitted and none done; of one to receive none came. */
static void stuck(void *context, uint64_t seq) {
    void *plan = group(context), *op = coll(context, plan, seq, 7, 1);
    stop(op);
    stop(plan);
    kernel(context, op, 0);
    void *send = proxy(context, op, 0, 1, getpid()), *receive = proxy(context, op, 0, 0, getpid());
    for (int number = 0; number < 3; number++) move(step(context, send, number), 1, 3 - number);
    move(step(context, receive, 0), 0, 1);
    step(context, receive, 0); /* NCCL begins a step anew while it has no buffer for it */
}

static void tell(const char *word) {
    printf("%s\n", word);
    fflush(stdout);
}

static void wait_for_reader(void) {
    char sign;
    tell("ready");
    if (read(0, &sign, 1) < 0) exit(4);
}

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000ULL + (uint64_t)at.tv_nsec;
}

/* --- scenarios --- */

static void counts(int many) {
    void *data = communicator(0xabc, "data", 2), *tensor = communicator(0xdef, NULL, 2);
    for (int number = 0; number < many; number++) whole(number % 2 ? tensor : data, (uint64_t)number / 2);
    stuck(data, (uint64_t)many);
    wait_for_reader();
}

/* NCCL says at each look of its proxy thread that a step still waits for its peer. */
static void polls(void) {
    void *context = communicator(1, NULL, 2), *plan = group(context), *op = coll(context, plan, 0, 1, 0);
    void *waiting = step(context, proxy(context, op, 0, 1, getpid()), 0);
    move(waiting, 1, 2);
    for (uint64_t until = now() + 400000000ULL; now() < until; usleep(1000)) move(waiting, 1, 2);
    wait_for_reader();
}

/* NCCL 2.28 says four channels of a send and starts three of them. */
static void channels_that_never_start(void) {
    void *context = communicator(1, NULL, 2), *plan = group(context), *op = p2p(context, plan, "Send", 1, 4);
    stop(op);
    stop(plan);
    for (int channel = 0; channel < 3; channel++) end_kernel(kernel(context, op, channel));
    wait_for_reader();
    whole(context, 0);
    wait_for_reader();
}

static void of_another_process(void) {
    void *context = communicator(1, NULL, 2), *plan = group(context), *op = coll(context, plan, 0, 1, 0);
    void *flow = proxy(context, (void *)0x7f00dead0000, 0, 1, getpid() + 1);
    move(step(context, flow, 0), 1, 4);
    stop(flow);
    stop(op);
    plugin->stop((void *)~0ULL);
    plugin->record((void *)0x123456, SEND_WAIT, NULL);
    plugin->finalize((void *)0x7f00dead0000);
    wait_for_reader();
}

static void forks(void) {
    void *context = communicator(1, NULL, 2);
    whole(context, 0);
    pid_t child = fork();
    if (!child) {
        whole(context, 1); /* with what its parent had */
        void *own = communicator(2, "child", 2);
        whole(own, 0);
        printf("child %d\n", (int)getpid());
        wait_for_reader();
        exit(0);
    }
    waitpid(child, NULL, 0);
}

static void many_communicators(void) {
    void *all[70];
    for (int number = 0; number < 70; number++) {
        all[number] = communicator((uint64_t)number + 1, NULL, 2);
        whole(all[number], 0);
    }
    wait_for_reader();
    for (int number = 0; number < 70; number++)
        if (all[number]) plugin->finalize(all[number]);
    stuck(communicator(100, "after", 2), 0);
    whole(all[0], 1); /* its place is another's now */
    wait_for_reader();
}

static void deep(void) {
    void *context = communicator(1, NULL, 2), *ops[2000];
    for (int number = 0; number < 2000; number++) {
        void *plan = group(context);
        stop(ops[number] = coll(context, plan, (uint64_t)number, 1, 0));
        stop(plan);
    }
    wait_for_reader();
    for (int number = 0; number < 2000; number++)
        for (int channel = 0; channel < CHANNELS; channel++)
            if (ops[number]) end_kernel(kernel(context, ops[number], channel));
    whole(context, 2000);
    wait_for_reader();
}

static void aborts(void) {
    stuck(communicator(1, NULL, 2), 0);
    tell("ready");
    abort();
}

static void unloads(void) {
    for (int round = 1; round < 4; round++) {
        void *context = communicator((uint64_t)round, NULL, 2);
        whole(context, 0);
        if (round == 3) break;
        plugin->finalize(context);
        void *library = dlopen(plugin_path, RTLD_NOW | RTLD_NOLOAD);
        dlclose(library);
        dlclose(library);
        if (dlopen(plugin_path, RTLD_NOW | RTLD_NOLOAD)) exit(5);
        load();
    }
    wait_for_reader();
}

static volatile int over;
static void *hammer(void *context) {
    for (uint64_t seq = 0; !over; seq++) whole(context, seq);
    return NULL;
}
static void busy(void) {
    pthread_t threads[2];
    for (int each = 0; each < 2; each++) pthread_create(&threads[each], NULL, hammer, communicator((uint64_t)each + 1, NULL, 2));
    wait_for_reader();
    over = 1;
    for (int each = 0; each < 2; each++) pthread_join(threads[each], NULL);
}

static void cost(int many) {
    void *context = communicator(1, NULL, 2);
    uint64_t began = now();
    for (int number = 0; number < many; number++) whole(context, (uint64_t)number);
    /* start and stop of a group, an API call, an operation, two kernels, four flows and sixteen steps, and what is said of them */
    double events = 2 * (3 + CHANNELS + 2 * CHANNELS) + CHANNELS + 2 * CHANNELS * STEPS * (2 + 5);
    printf("%.1f ns an event, %.1f ns a collective of %.0f events\n", (double)(now() - began) / many / events,
           (double)(now() - began) / many, events);
    wait_for_reader();
}

/* A rank of two that truly wait for each other, by a file both have mapped; until a file FILE.stop is there. While FILE.hang is
 * there and FILE.release is not, the device of rank 1 does not begin what is launched. */
static int is_there(const char *file, const char *sign) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", file, sign);
    return !access(path, F_OK);
}
static void pair(const char *file, int rank) {
    enum { LAST = 2 };
    int fd = open(file, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 64)) exit(6);
    volatile uint64_t *entered = mmap(NULL, 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    rank_here = rank;
    void *context = communicator(0x9a17, "pair", 2);
    uint64_t made = 0, until = now() + 60000000000ULL;
    tell("{\"ready\": true}");
    for (; now() < until && !(entered[LAST] && made >= entered[LAST]); made++) {
        void *plan = group(context), *op = coll(context, plan, made, 1024, 0), *kernels[CHANNELS];
        stop(op);
        stop(plan);
        void *send = proxy(context, op, 0, 1, getpid()), *receive = proxy(context, op, 0, 0, getpid());
        void *sent = step(context, send, 0), *received = step(context, receive, 0);
        move(received, 0, 1);
        while (rank && is_there(file, "hang") && !is_there(file, "release") && now() < until) usleep(1000);
        for (int channel = 0; channel < CHANNELS; channel++) kernels[channel] = kernel(context, op, channel);
        move(sent, 1, 4);
        stop(send);
        entered[rank] = made + 1;
        while (entered[1 - rank] < made + 1 && now() < until) usleep(50);
        move(received, 0, 4);
        stop(receive);
        for (int channel = 0; channel < CHANNELS; channel++) end_kernel(kernels[channel]);
        if (!rank && !entered[LAST] && is_there(file, "stop")) entered[LAST] = made + 3; /* both end after the same one */
        usleep(200);
    }
    char sign;
    printf("{\"done\": true, \"all_reduce\": %llu, \"right\": true}\n", (unsigned long long)made);
    fflush(stdout);
    if (read(0, &sign, 1) < 0) exit(4);
}

int main(int count, char **words) {
    if (count < 4) return 64;
    plugin_path = words[1];
    version = atoi(words[2]);
    load();
    const char *scenario = words[3];
    int many = count > 4 ? atoi(words[4]) : 1000;
    if (!strcmp(scenario, "counts")) counts(many);
    else if (!strcmp(scenario, "channels")) channels_that_never_start();
    else if (!strcmp(scenario, "polls")) polls();
    else if (!strcmp(scenario, "foreign")) of_another_process();
    else if (!strcmp(scenario, "fork")) forks();
    else if (!strcmp(scenario, "many")) many_communicators();
    else if (!strcmp(scenario, "deep")) deep();
    else if (!strcmp(scenario, "abort")) aborts();
    else if (!strcmp(scenario, "unload")) unloads();
    else if (!strcmp(scenario, "busy")) busy();
    else if (!strcmp(scenario, "cost")) cost(many);
    else if (!strcmp(scenario, "pair") && count == 6) pair(words[4], atoi(words[5]));
    else return 64;
    return 0;
}
