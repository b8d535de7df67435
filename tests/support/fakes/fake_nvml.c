/* A fake of NVIDIA's libnvidia-ml.so.1 for tests on machines without a GPU: real clients load it and ask it.
 *
 * Its answers lie in the folder named by FAKE_NVML, one file each, read anew with every call:
 *   init, count, driver      of the library;   0/uuid, 0/serial, 0/recovery ...   of GPU 0 (the names stand at the calls below)
 *   0/all                    stands before every call on GPU 0, its handle included;  0/handle before its handle only
 *   0/events                 lines "TYPE DATA"; those added after registration are delivered once each
 * A file holds the value, or "!15" for return code 15, or "@" for a call that blocks until the file says something else.
 * What has no file is Not Supported, as on a GPU that lacks it. Tests replace a file by renaming another one over it.
 *
 * Built with -DOLD it lacks a symbol, as an older driver does.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum code { FINE = 0, NOT_STARTED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_MORE_EVENTS = 10, WRONG_LAYOUT = 25 };
enum { GPUS = 16, TEXT = 256 };

struct device { unsigned index; long delivered; int listens; unsigned long long mask; };
static struct device devices[GPUS];
static int users;

/* What a file says: its code, and its text where that is FINE. */
static int say(const char *name, char *out) {
    const char *folder = getenv("FAKE_NVML");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", name);
    for (;;) {
        FILE *file = fopen(path, "r");
        if (file == NULL) return NOT_SUPPORTED;
        out[0] = 0;
        if (fgets(out, TEXT, file) == NULL) out[0] = 0;
        fclose(file);
        out[strcspn(out, "\n")] = 0;
        if (out[0] != '@') break;
        usleep(10000);
    }
    return out[0] == '!' ? atoi(out + 1) : FINE;
}

static int of_library(const char *name, char *out) { return users > 0 ? say(name, out) : NOT_STARTED; }

static int of_device(struct device *device, const char *name, char *out) {
    char path[TEXT];
    int code;
    if (users == 0) return NOT_STARTED;
    snprintf(path, sizeof path, "%u/all", device->index);
    code = say(path, out);
    if (code != FINE && code != NOT_SUPPORTED) return code;
    snprintf(path, sizeof path, "%u/%s", device->index, name);
    return say(path, out);
}

static int a_number(struct device *device, const char *name, unsigned long long *value) {
    char text[TEXT];
    int code = of_device(device, name, text);
    if (code == FINE) *value = strtoull(text, NULL, 0);
    return code;
}

static int a_small_number(struct device *device, const char *name, unsigned *value) {
    unsigned long long wide = 0;
    int code = a_number(device, name, &wide);
    if (code == FINE) *value = (unsigned)wide;
    return code;
}

static int a_text(struct device *device, const char *name, char *out, unsigned size) {
    char text[TEXT];
    int code = of_device(device, name, text);
    if (code == FINE) snprintf(out, size, "%s", text);
    return code;
}

/* -------- the library */

int nvmlInitWithFlags(unsigned flags) {
    char text[TEXT];
    int code = say("init", text);
    (void)flags;
    if (code != FINE && code != NOT_SUPPORTED) return code;
    users++;
    return FINE;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { if (users == 0) return NOT_STARTED; users--; return FINE; }
const char *nvmlErrorString(int code) { static char text[32]; snprintf(text, sizeof text, "fake code %d", code); return text; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    char text[TEXT];
    int code = of_library("driver", text);
    if (code == FINE) snprintf(out, size, "%s", text);
    return code;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    char text[TEXT];
    int code = of_library("count", text);
    if (code == FINE) *count = (unsigned)atoi(text);
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **out) {
    char text[TEXT];
    int code;
    if (index >= GPUS) return INVALID;
    devices[index].index = index;
    code = of_device(&devices[index], "handle", text);
    *out = &devices[index];
    return code == NOT_SUPPORTED ? FINE : code;
}

/* -------- one value each */

#define TEXT_OF(call, name) int call(struct device *d, char *out, unsigned size) { return a_text(d, name, out, size); }
#define NUMBER_OF(call, name) int call(struct device *d, unsigned *out) { return a_small_number(d, name, out); }
#define WIDE_OF(call, name) int call(struct device *d, unsigned long long *out) { return a_number(d, name, out); }

TEXT_OF(nvmlDeviceGetUUID, "uuid")
TEXT_OF(nvmlDeviceGetSerial, "serial")
NUMBER_OF(nvmlDeviceGetPowerUsage, "power")
NUMBER_OF(nvmlDeviceGetEnforcedPowerLimit, "power_limit")
NUMBER_OF(nvmlDeviceGetCurrPcieLinkWidth, "width")
NUMBER_OF(nvmlDeviceGetMaxPcieLinkWidth, "width_max")
NUMBER_OF(nvmlDeviceGetPcieReplayCounter, "replays")
NUMBER_OF(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")
WIDE_OF(nvmlDeviceGetCurrentClocksEventReasons, "clock_reasons")
WIDE_OF(nvmlDeviceGetSupportedEventTypes, "event_types")

int nvmlDeviceGetTemperature(struct device *d, unsigned sensor, unsigned *out) { (void)sensor; return a_small_number(d, "temperature", out); }

/* out[0] is the GPU's use in per cent, out[1] its memory's */
int nvmlDeviceGetUtilizationRates(struct device *d, unsigned *out) { out[1] = 0; return a_small_number(d, "busy", out); }

struct address { char old[16]; unsigned domain, bus, slot, id, subsystem; char text[32]; };
int nvmlDeviceGetPciInfo_v3(struct device *d, struct address *out) {
    memset(out, 0, sizeof *out);
    return a_text(d, "pci", out->text, sizeof out->text);
}

/* -------- settings: what is set is what is read next, unless "set" answers a code */

static int set(struct device *d, const char *name, unsigned value) {
    char path[PATH_MAX], fresh[PATH_MAX], text[TEXT];
    int code = of_device(d, "set", text);
    FILE *file;
    if (code != FINE && code != NOT_SUPPORTED) return code;
    snprintf(path, sizeof path, "%s/%u/%s", getenv("FAKE_NVML"), d->index, name);
    snprintf(fresh, sizeof fresh, "%s/%u/.set", getenv("FAKE_NVML"), d->index);
    if ((file = fopen(fresh, "w")) == NULL) return NOT_SUPPORTED;
    fprintf(file, "%u\n", value);
    fclose(file);
    return rename(fresh, path) == 0 ? FINE : NOT_SUPPORTED;
}
#define SETTING_OF(what, name) \
    int nvmlDeviceGet##what(struct device *d, unsigned *out) { return a_small_number(d, name, out); } \
    int nvmlDeviceSet##what(struct device *d, unsigned value) { return set(d, name, value); }

SETTING_OF(PersistenceMode, "persistence")
SETTING_OF(PowerManagementLimit, "power_limit")
SETTING_OF(ComputeMode, "compute_mode")
int nvmlDeviceGetApplicationsClock(struct device *d, unsigned kind, unsigned *out) {
    return a_small_number(d, kind == 2 ? "clock_memory" : "clock_graphics", out);
}
int nvmlDeviceSetApplicationsClocks(struct device *d, unsigned memory, unsigned graphics) {
    int code = set(d, "clock_memory", memory);
    return code == FINE ? set(d, "clock_graphics", graphics) : code;
}

/* -------- memory */

int nvmlDeviceGetTotalEccErrors(struct device *d, unsigned kind, unsigned counter, unsigned long long *out) {
    char name[64];
    snprintf(name, sizeof name, "ecc.%u.%u", kind, counter);
    return a_number(d, name, out);
}
int nvmlDeviceGetMemoryErrorCounter(struct device *d, unsigned kind, unsigned counter, unsigned where, unsigned long long *out) {
    char name[64];
    snprintf(name, sizeof name, "ecc.%u.%u.%u", kind, counter, where);
    return a_number(d, name, out);
}

/* The file "remap" holds four numbers: correctable, uncorrectable, pending, failure. */
int nvmlDeviceGetRemappedRows(struct device *d, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failure) {
    char text[TEXT];
    int code = of_device(d, "remap", text);
    if (code != FINE) return code;
    return sscanf(text, "%u %u %u %u", correctable, uncorrectable, pending, failure) == 4 ? FINE : INVALID;
}
struct left { unsigned most, high, partial, low, none; };
int nvmlDeviceGetRowRemapperHistogram(struct device *d, struct left *out) { memset(out, 0, sizeof *out); return a_small_number(d, "remap_spent", &out->none); }

#ifndef OLD
struct sram { unsigned layout; unsigned long long counts[11]; unsigned exceeded; };
int nvmlDeviceGetSramEccErrorStatus(struct device *d, struct sram *out) {
    if (out->layout != (1u << 24 | sizeof *out)) return WRONG_LAYOUT;
    return a_small_number(d, "sram_exceeded", &out->exceeded);
}
#endif

/* -------- links: the file "nvlinks" holds a digit for each, 1 for up */

int nvmlDeviceGetNvLinkState(struct device *d, unsigned link, unsigned *out) {
    char text[TEXT];
    int code = of_device(d, "nvlinks", text);
    if (code != FINE) return code;
    if (link >= strlen(text)) return INVALID;
    *out = text[link] == '1';
    return FINE;
}

/* "fabric" holds state, status and health mask; "fabric_layout" the newest layout that this driver knows. */
struct fabric { unsigned layout; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned health; unsigned char summary; };
int nvmlDeviceGetGpuFabricInfoV(struct device *d, struct fabric *out) {
    char text[TEXT];
    unsigned state = 0, status = 0, health = 0, newest = 3;
    int code = of_device(d, "fabric", text);
    a_small_number(d, "fabric_layout", &newest);
    if (out->layout >> 24 > newest) return WRONG_LAYOUT;
    if (code != FINE) return code;
    sscanf(text, "%u %u %i", &state, &status, (int *)&health);
    out->state = (unsigned char)state;
    out->status = (int)status;
    out->health = health;
    return FINE;
}

/* -------- fields: the call succeeds, and each value has a code of its own, as on a real GPU that is lost */

struct field { unsigned id, scope; long long at, latency; unsigned type; int code; unsigned long long value; };
int nvmlDeviceGetFieldValues(struct device *d, int count, struct field *fields) {
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "field.%u", fields[i].id);
        fields[i].type = 3;
        fields[i].value = 0;
        fields[i].code = a_number(d, name, &fields[i].value);
    }
    return FINE;
}

/* -------- events */

static FILE *events_of(struct device *d) {
    const char *folder = getenv("FAKE_NVML");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%u/events", folder ? folder : "", d->index);
    return fopen(path, "r");
}

int nvmlEventSetCreate(void **set) { if (users == 0) return NOT_STARTED; *set = devices; return FINE; }
int nvmlEventSetFree(void *set) { (void)set; return FINE; }

int nvmlDeviceRegisterEvents(struct device *d, unsigned long long mask, void *set) {
    char text[TEXT];
    int code = of_device(d, "register", text);
    FILE *file = events_of(d);
    (void)set;
    if (code != FINE && code != NOT_SUPPORTED) return code;
    d->listens = 1;
    d->mask = mask;
    for (d->delivered = 0; file != NULL && fgets(text, TEXT, file) != NULL;) d->delivered++;
    if (file != NULL) fclose(file);
    return FINE;
}

struct event { struct device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
int nvmlEventSetWait_v2(void *set, struct event *out, unsigned timeout_ms) {
    (void)set;
    for (unsigned waited = 0;; waited += 10) {
        for (struct device *d = devices; d < devices + GPUS; d++) {
            FILE *file = d->listens ? events_of(d) : NULL;
            char text[TEXT];
            long line = 0;
            while (file != NULL && fgets(text, TEXT, file) != NULL) {
                char *rest;
                if (line++ < d->delivered) continue;
                d->delivered++;
                out->type = strtoull(text, &rest, 0);
                out->data = strtoull(rest, NULL, 0);
                out->device = d;
                if (out->type & d->mask) { fclose(file); return FINE; }
            }
            if (file != NULL) fclose(file);
        }
        if (waited >= timeout_ms) return NO_MORE_EVENTS;
        usleep(10000);
    }
}
