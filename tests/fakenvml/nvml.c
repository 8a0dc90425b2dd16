/*
 * A stand-in for the NVIDIA driver's libnvidia-ml.so.1: what the agent calls through pynvml and NVIDIA's container
 * toolkit through go-nvml, and no more.
 *
 * It plays a scenario file: the one named by FAKE_NVML_SCENARIO, or `fakenvml.scenario` beside the library, or, in a
 * container that was given the library alone, the one in the node's /dev as the agent's pods see that. The file is
 * looked at on every call, so that a test can lose a GPU or reload the driver under a running process.
 *
 * As the real library it holds /dev/nvidiactl and /dev/nvidiaN open from nvmlInit on, and without them it fails:
 *   /dev/nvidiactl absent or without a driver -> DRIVER_NOT_LOADED, refused by its mode -> NO_PERMISSION,
 *   refused by the device cgroup (EPERM)      -> UNKNOWN;
 *   /dev/nvidiaN absent -> the GPU does not exist for this process; refused -> NO_PERMISSION for its handle;
 *   MIG devices show themselves to who can open the `monitor` capability, or those of the instance.
 * How many GPUs there are is settled by nvmlInit; a GPU that was reset answers again after another nvmlInit.
 *
 * One line per thing, `word position... key=value...`, values percent-encoded; see Scenario in __init__.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, LIBRARY_NOT_FOUND = 12, FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};

#define INIT_NO_GPUS 1 /* without it nvmlInit fails where there is no GPU */
#define MAX_GPUS 64
#define MAX_MIGS 16
#define MAX_LINKS 36
#define MAX_RULES 64
#define MAX_EVENTS 256
#define TEXT 128
#define NONE 0xFFFFFFFFu
#define EXPORT __attribute__((visibility("default")))

struct mig {
    unsigned index, gi, ci, slices, ci_slices, cap_gi, cap_ci;
    unsigned long long memory_mb, used_mb;
    char uuid[TEXT], name[TEXT];
};

struct link {
    int active, type;
    char remote[TEXT];
};

struct gpu {
    int number, lost, resets;
    unsigned minor, cc_major, cc_minor, arch, brand;
    int mig, mig_pending, mig_max;
    int retired, remap_pending, remap_failed, sram_exceeded, recovery, recovery_known;
    long long ecc_corrected, ecc_uncorrected, temperature, power, utilisation, sm_clock, memory_clock, link_errors;
    unsigned long long memory, used, reserved;
    char uuid[TEXT], name[TEXT], pci[TEXT];
    int migs, links;
    struct mig mig_devices[MAX_MIGS];
    struct link nvlinks[MAX_LINKS];
};

struct rule {
    char kind, function[TEXT];
    int gpu;
    double value;
};

struct event {
    long number;
    int gpu;
    unsigned long long type, data;
    unsigned gi, ci;
};

static struct {
    struct stat seen;
    int loaded, generation, cuda, gpus, rules, events;
    char driver[TEXT], dev[PATH_MAX];
    struct gpu gpu[MAX_GPUS];
    struct rule rule[MAX_RULES];
    struct event event[MAX_EVENTS];
} scenario;

struct handle {
    long init;
    int is_mig;
    char gpu[TEXT], mig[TEXT];
    struct handle *next;
};

struct event_set {
    long init, last;
    int registered;
    char uuid[MAX_GPUS][TEXT];
    unsigned long long types[MAX_GPUS];
};

/* What one nvmlInit found: the GPUs of this process, by position. */
static struct {
    long number;
    int references, generation, control, gpus;
    char uuid[MAX_GPUS][TEXT];
    int fd[MAX_GPUS], error[MAX_GPUS], resets[MAX_GPUS];
} session = {.control = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;

/* The scenario */

static const char *scenario_path(void)
{
    static char path[PATH_MAX];
    const char *named = getenv("FAKE_NVML_SCENARIO");
    Dl_info info;

    if (named && *named)
        return named;
    if (!*path && dladdr((void *)(uintptr_t)&scenario_path, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        snprintf(path, sizeof path, "%.*sfakenvml.scenario", slash ? (int)(slash - info.dli_fname + 1) : 0,
                 info.dli_fname);
        if (access(path, R_OK))
            strcpy(path, "/host/dev/fakenvml.scenario");
    }
    return path;
}

static void decode(const char *from, char *to, size_t room)
{
    size_t at = 0;

    for (; *from && at + 1 < room; from++) {
        unsigned byte;
        if (*from == '%' && sscanf(from + 1, "%2x", &byte) == 1) {
            to[at++] = (char)byte;
            from += 2;
        } else {
            to[at++] = *from;
        }
    }
    to[at] = 0;
}

static struct gpu *gpu_by_number(int number)
{
    for (int i = 0; i < scenario.gpus; i++)
        if (scenario.gpu[i].number == number)
            return &scenario.gpu[i];
    return NULL;
}

static struct gpu *gpu_by_uuid(const char *uuid)
{
    for (int i = 0; i < scenario.gpus; i++)
        if (!strcmp(scenario.gpu[i].uuid, uuid))
            return &scenario.gpu[i];
    return NULL;
}

#define NUMBER(name, field) if (!strcmp(key, name)) { (field) = (__typeof__(field))strtoll(value, NULL, 0); continue; }
#define STRING(name, field) if (!strcmp(key, name)) { decode(value, (field), sizeof(field)); continue; }
#define EACH_PAIR(rest) \
    for (char *more = NULL, *key = strtok_r((rest), " ", &more), *value; \
         key && ((value = strchr(key, '=')) != NULL) && (*value++ = 0, 1); key = strtok_r(NULL, " ", &more))

static void read_gpu(char *rest, int number)
{
    struct gpu *gpu = &scenario.gpu[scenario.gpus++];

    memset(gpu, 0, sizeof *gpu);
    gpu->number = number;
    EACH_PAIR(rest) {
        STRING("uuid", gpu->uuid) STRING("name", gpu->name) STRING("pci", gpu->pci)
        NUMBER("minor", gpu->minor) NUMBER("memory", gpu->memory) NUMBER("used", gpu->used) NUMBER("reserved", gpu->reserved)
        NUMBER("cc_major", gpu->cc_major) NUMBER("cc_minor", gpu->cc_minor)
        NUMBER("arch", gpu->arch) NUMBER("brand", gpu->brand)
        NUMBER("mig", gpu->mig) NUMBER("mig_pending", gpu->mig_pending) NUMBER("mig_max", gpu->mig_max)
        NUMBER("lost", gpu->lost) NUMBER("resets", gpu->resets)
        NUMBER("ecc_corrected", gpu->ecc_corrected) NUMBER("ecc_uncorrected", gpu->ecc_uncorrected)
        NUMBER("retired", gpu->retired) NUMBER("remap_pending", gpu->remap_pending)
        NUMBER("remap_failed", gpu->remap_failed) NUMBER("sram_exceeded", gpu->sram_exceeded) NUMBER("recovery", gpu->recovery)
        NUMBER("recovery_known", gpu->recovery_known)
        NUMBER("temperature", gpu->temperature) NUMBER("power", gpu->power) NUMBER("utilisation", gpu->utilisation)
        NUMBER("sm_clock", gpu->sm_clock) NUMBER("memory_clock", gpu->memory_clock)
        NUMBER("link_errors", gpu->link_errors)
    }
}

static void read_mig(char *rest, struct gpu *gpu)
{
    struct mig *mig;

    if (!gpu || gpu->migs == MAX_MIGS)
        return;
    mig = &gpu->mig_devices[gpu->migs++];
    memset(mig, 0, sizeof *mig);
    EACH_PAIR(rest) {
        STRING("uuid", mig->uuid) STRING("name", mig->name)
        NUMBER("index", mig->index) NUMBER("gi", mig->gi) NUMBER("ci", mig->ci)
        NUMBER("slices", mig->slices) NUMBER("ci_slices", mig->ci_slices)
        NUMBER("cap_gi", mig->cap_gi) NUMBER("cap_ci", mig->cap_ci)
        NUMBER("memory_mb", mig->memory_mb) NUMBER("used_mb", mig->used_mb)
    }
}

static void read_link(char *rest, struct gpu *gpu)
{
    struct link *link;

    if (!gpu || gpu->links == MAX_LINKS)
        return;
    link = &gpu->nvlinks[gpu->links++];
    memset(link, 0, sizeof *link);
    EACH_PAIR(rest) {
        NUMBER("active", link->active) NUMBER("type", link->type) STRING("remote", link->remote)
    }
}

static void read_event(char *rest, long number)
{
    struct event *event;

    if (scenario.events == MAX_EVENTS)
        return;
    event = &scenario.event[scenario.events++];
    *event = (struct event){.number = number, .gi = NONE, .ci = NONE};
    EACH_PAIR(rest) {
        NUMBER("gpu", event->gpu) NUMBER("type", event->type) NUMBER("data", event->data)
        NUMBER("gi", event->gi) NUMBER("ci", event->ci)
    }
}

static void read_line(char *line)
{
    char *more = NULL, *word = strtok_r(line, " ", &more), *first = strtok_r(NULL, " ", &more);

    if (!word || !first)
        return;
    if (!strcmp(word, "driver"))
        decode(first, scenario.driver, sizeof scenario.driver);
    else if (!strcmp(word, "dev"))
        decode(first, scenario.dev, sizeof scenario.dev);
    else if (!strcmp(word, "cuda"))
        scenario.cuda = atoi(first);
    else if (!strcmp(word, "loaded"))
        scenario.loaded = atoi(first);
    else if (!strcmp(word, "generation"))
        scenario.generation = atoi(first);
    else if (!strcmp(word, "gpu") && scenario.gpus < MAX_GPUS)
        read_gpu(more, atoi(first));
    else if (!strcmp(word, "mig"))
        read_mig(more, gpu_by_number(atoi(first)));
    else if (!strcmp(word, "link"))
        read_link(more, gpu_by_number(atoi(first)));
    else if (!strcmp(word, "event"))
        read_event(more, atol(first));
    else if ((!strcmp(word, "fail") || !strcmp(word, "hang") || !strcmp(word, "slow")) && scenario.rules < MAX_RULES) {
        /* fail FUNCTION GPU|* CODE; hang FUNCTION GPU|* CLOCK_MONOTONIC-SECONDS; slow FUNCTION GPU|* SECONDS */
        struct rule *rule = &scenario.rule[scenario.rules];
        char *gpu = strtok_r(NULL, " ", &more), *value = strtok_r(NULL, " ", &more);
        if (gpu && value) {
            rule->kind = *word;
            snprintf(rule->function, sizeof rule->function, "%s", first);
            rule->gpu = *gpu == '*' ? -1 : atoi(gpu);
            rule->value = strtod(value, NULL);
            scenario.rules++;
        }
    }
}

static void refresh(void)
{
    struct stat now;
    FILE *file;
    char *line = NULL;
    size_t room = 0;

    if (stat(scenario_path(), &now)) {
        memset(&scenario, 0, sizeof scenario);
        return;
    }
    if (now.st_ino == scenario.seen.st_ino && now.st_size == scenario.seen.st_size &&
        now.st_mtim.tv_sec == scenario.seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == scenario.seen.st_mtim.tv_nsec)
        return;
    file = fopen(scenario_path(), "re");
    if (!file)
        return;
    memset(&scenario, 0, sizeof scenario);
    strcpy(scenario.dev, "/dev");
    while (getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        read_line(line);
    }
    free(line);
    fclose(file);
    scenario.seen = now;
}

static double monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void pause_for(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static struct rule *rule_for(char kind, const char *function, int gpu)
{
    for (int i = 0; i < scenario.rules; i++) {
        struct rule *rule = &scenario.rule[i];
        if (rule->kind == kind && (rule->gpu == -1 || rule->gpu == gpu) &&
            (!strcmp(rule->function, "*") || !strcmp(rule->function, function)))
            return rule;
    }
    return NULL;
}

/* Every call: waits while it is to hang, without the lock; returns with it. */
static int gate(const char *function, int gpu)
{
    struct rule *rule;
    double slow;

    pthread_mutex_lock(&lock);
    refresh();
    rule = rule_for('s', function, gpu);
    slow = rule ? rule->value : 0;
    if (slow > 0) {
        pthread_mutex_unlock(&lock);
        pause_for(slow);
        pthread_mutex_lock(&lock);
        refresh();
    }
    while ((rule = rule_for('h', function, gpu)) && rule->value > monotonic()) {
        pthread_mutex_unlock(&lock);
        pause_for(0.01);
        pthread_mutex_lock(&lock);
        refresh();
    }
    rule = rule_for('f', function, gpu);
    return rule ? (int)rule->value : SUCCESS;
}

static int leave(int status)
{
    pthread_mutex_unlock(&lock);
    return status;
}

static int alive(void)
{
    if (!session.references)
        return UNINITIALIZED;
    if (!scenario.loaded)
        return DRIVER_NOT_LOADED;
    return session.generation == scenario.generation ? SUCCESS : UNINITIALIZED;
}

/* Handles */

static struct handle *handle_of(const char *gpu, const char *mig)
{
    struct handle *handle;

    for (handle = handles; handle; handle = handle->next)
        if (handle->init == session.number && !strcmp(handle->gpu, gpu) && !strcmp(handle->mig, mig))
            return handle;
    handle = calloc(1, sizeof *handle);
    if (!handle)
        abort();
    handle->init = session.number;
    handle->is_mig = *mig != 0;
    snprintf(handle->gpu, sizeof handle->gpu, "%s", gpu);
    snprintf(handle->mig, sizeof handle->mig, "%s", mig);
    handle->next = handles; /* never freed: a stale handle must be told, not crash */
    handles = handle;
    return handle;
}

static int is_handle(const struct handle *wanted)
{
    for (struct handle *handle = handles; handle; handle = handle->next)
        if (handle == wanted)
            return 1;
    return 0;
}

static int resets_at_init(const char *uuid)
{
    for (int i = 0; i < session.gpus; i++)
        if (!strcmp(session.uuid[i], uuid))
            return session.resets[i];
    return -1;
}

static int usable(const struct gpu *gpu)
{
    return gpu && !gpu->lost && resets_at_init(gpu->uuid) == gpu->resets ? SUCCESS : GPU_IS_LOST;
}

/* With the lock held at its end, whatever it returns. */
static int enter(const char *function, struct handle *handle, struct gpu **gpu, struct mig **mig)
{
    struct gpu *found;
    int number, status;

    pthread_mutex_lock(&lock);
    refresh();
    found = is_handle(handle) ? gpu_by_uuid(handle->gpu) : NULL;
    number = found ? found->number : -2;
    pthread_mutex_unlock(&lock);

    status = gate(function, number);
    *mig = NULL;
    if (alive())
        return alive();
    if (!is_handle(handle) || handle->init != session.number)
        return INVALID_ARGUMENT;
    *gpu = gpu_by_uuid(handle->gpu);
    if (usable(*gpu))
        return GPU_IS_LOST;
    if (status)
        return status;
    if (handle->is_mig) {
        for (int i = 0; i < (*gpu)->migs; i++)
            if (!strcmp((*gpu)->mig_devices[i].uuid, handle->mig))
                *mig = &(*gpu)->mig_devices[i];
        if (!*mig)
            return NOT_FOUND;
    }
    return SUCCESS;
}

#define ENTER(function) \
    struct gpu *gpu = NULL; \
    struct mig *mig = NULL; \
    int status = enter(#function, device, &gpu, &mig); \
    if (status) \
        return leave(status)
#define GPU_ONLY if (mig) return leave(NOT_SUPPORTED)
#define MIG_ONLY if (!mig) return leave(NOT_SUPPORTED)

static int text(const char *from, char *to, unsigned room)
{
    if (strlen(from) + 1 > room)
        return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

/* Start and end */

static int open_node(const char *format, unsigned number)
{
    char path[PATH_MAX + 64];
    int at = snprintf(path, sizeof path, "%s/", scenario.dev);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(path + at, sizeof path - (size_t)at, format, number);
#pragma GCC diagnostic pop
    return open(path, O_RDWR | O_CLOEXEC);
}

static int can_open(unsigned cap)
{
    int fd = open_node("nvidia-caps/nvidia-cap%u", cap);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int sees(const struct mig *mig)
{
    return can_open(2) || (can_open(mig->cap_gi) && can_open(mig->cap_ci));
}

static void close_nodes(void)
{
    if (session.control >= 0)
        close(session.control);
    session.control = -1;
    for (int i = 0; i < session.gpus; i++)
        if (session.fd[i] >= 0)
            close(session.fd[i]);
    session.gpus = 0;
}

static int start(void)
{
    if (!scenario.loaded)
        return DRIVER_NOT_LOADED;
    session.control = open_node("nvidiactl", 0);
    if (session.control < 0)
        return errno == EACCES ? NO_PERMISSION : errno == EPERM ? UNKNOWN : DRIVER_NOT_LOADED;
    for (int i = 0; i < scenario.gpus; i++) {
        int at = session.gpus, fd = open_node("nvidia%u", scenario.gpu[i].minor);
        if (fd < 0 && errno != EACCES && errno != EPERM)
            continue; /* it is not among this process's devices */
        session.error[at] = fd < 0 ? NO_PERMISSION : SUCCESS;
        session.fd[at] = fd;
        session.resets[at] = scenario.gpu[i].resets;
        strcpy(session.uuid[at], scenario.gpu[i].uuid);
        session.gpus++;
    }
    session.number++;
    session.generation = scenario.generation;
    return SUCCESS;
}

EXPORT int nvmlInitWithFlags(unsigned flags)
{
    int status = gate("nvmlInitWithFlags", -2);

    if (!status && !session.references) {
        status = start();
        if (!status && !session.gpus && !(flags & INIT_NO_GPUS))
            status = NOT_FOUND;
        if (status)
            close_nodes();
    }
    if (!status)
        session.references++;
    return leave(status);
}

/* What NVIDIA's own container toolkit calls. */
EXPORT int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT int nvmlShutdown(void)
{
    int status = gate("nvmlShutdown", -2);

    if (!status && session.references && !--session.references)
        close_nodes();
    return leave(status); /* of one that was never started too */
}

EXPORT const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "The operation was successful";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case LIBRARY_NOT_FOUND: return "Shared Library Not Found";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned room)
{
    int status = gate("nvmlSystemGetDriverVersion", -2);

    if (!status && !(status = alive()))
        status = text(scenario.driver, version, room);
    return leave(status);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version)
{
    int status = gate("nvmlSystemGetCudaDriverVersion", -2);

    if (!status && !(status = alive()))
        *version = scenario.cuda;
    return leave(status);
}

/* It asks libcuda.so.1, which a container with the driver capability `utility` alone has not, nor has a process that
 * loaded this library from another root. */
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    int status = gate("nvmlSystemGetCudaDriverVersion_v2", -2);
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (!cuda && !status)
        status = LIBRARY_NOT_FOUND;
    if (cuda)
        dlclose(cuda);
    if (!status && !(status = alive()))
        *version = scenario.cuda;
    return leave(status);
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    int status = gate("nvmlDeviceGetCount_v2", -2);

    if (!status && !(status = alive()))
        *count = (unsigned)session.gpus;
    return leave(status);
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **device)
{
    struct gpu *gpu;
    int status, number;

    pthread_mutex_lock(&lock);
    refresh();
    gpu = index < (unsigned)session.gpus ? gpu_by_uuid(session.uuid[index]) : NULL;
    number = gpu ? gpu->number : -2;
    pthread_mutex_unlock(&lock);
    status = gate("nvmlDeviceGetHandleByIndex_v2", number);
    if (alive())
        return leave(alive());
    if (index >= (unsigned)session.gpus)
        return leave(INVALID_ARGUMENT);
    if (session.error[index])
        return leave(session.error[index]);
    if (usable(gpu_by_uuid(session.uuid[index])))
        return leave(GPU_IS_LOST);
    if (!status)
        *device = handle_of(session.uuid[index], "");
    return leave(status);
}

/* A GPU of this process, or a MIG device of one that it may see. */
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, struct handle **device)
{
    int status = gate("nvmlDeviceGetHandleByUUID", -2);

    if (status || (status = alive()))
        return leave(status);
    for (int at = 0; at < session.gpus; at++) {
        struct gpu *gpu = gpu_by_uuid(session.uuid[at]);
        int is_gpu = gpu && !strcmp(gpu->uuid, uuid), is_mig = 0;

        for (int i = 0; gpu && i < gpu->migs; i++)
            is_mig = is_mig || (!strcmp(gpu->mig_devices[i].uuid, uuid) && sees(&gpu->mig_devices[i]));
        if (!is_gpu && !is_mig)
            continue;
        if (session.error[at] || usable(gpu))
            return leave(session.error[at] ? session.error[at] : GPU_IS_LOST);
        *device = handle_of(gpu->uuid, is_mig ? uuid : "");
        return leave(SUCCESS);
    }
    return leave(NOT_FOUND);
}

/* What a device is */

EXPORT int nvmlDeviceGetIndex(struct handle *device, unsigned *index)
{
    ENTER(nvmlDeviceGetIndex);
    for (int at = 0; at < session.gpus; at++)
        if (!strcmp(session.uuid[at], gpu->uuid))
            *index = mig ? mig->index : (unsigned)at;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetUUID(struct handle *device, char *uuid, unsigned room)
{
    ENTER(nvmlDeviceGetUUID);
    return leave(text(mig ? mig->uuid : gpu->uuid, uuid, room));
}

EXPORT int nvmlDeviceGetName(struct handle *device, char *name, unsigned room)
{
    ENTER(nvmlDeviceGetName);
    return leave(text(mig ? mig->name : gpu->name, name, room));
}

EXPORT int nvmlDeviceGetMinorNumber(struct handle *device, unsigned *minor)
{
    ENTER(nvmlDeviceGetMinorNumber);
    GPU_ONLY;
    *minor = gpu->minor;
    return leave(SUCCESS);
}

struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

static void fill_pci(const char *address, struct pci_info *info)
{
    memset(info, 0, sizeof *info);
    sscanf(address, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus & 0xFF,
             info->device & 0xFF);
    snprintf(info->legacy, sizeof info->legacy, "%04X:%02X:%02X.0", info->domain & 0xFFFF, info->bus & 0xFF,
             info->device & 0xFF);
    info->device_id = 0x20B010DE;
}

EXPORT int nvmlDeviceGetPciInfo_v3(struct handle *device, struct pci_info *info)
{
    ENTER(nvmlDeviceGetPciInfo_v3);
    GPU_ONLY;
    fill_pci(gpu->pci, info);
    return leave(SUCCESS);
}

struct memory {
    unsigned long long total, free, used;
};

/* What the driver keeps for itself counts as used here, and by itself in the second version. */
EXPORT int nvmlDeviceGetMemoryInfo(struct handle *device, struct memory *memory)
{
    ENTER(nvmlDeviceGetMemoryInfo);
    memory->total = mig ? mig->memory_mb << 20 : gpu->memory;
    memory->used = mig ? mig->used_mb << 20 : gpu->used + gpu->reserved;
    memory->free = memory->total - memory->used;
    return leave(SUCCESS);
}

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

EXPORT int nvmlDeviceGetMemoryInfo_v2(struct handle *device, struct memory_v2 *memory)
{
    ENTER(nvmlDeviceGetMemoryInfo_v2);
    if (memory->version != (sizeof *memory | 2u << 24))
        return leave(ARGUMENT_VERSION_MISMATCH);
    memory->total = mig ? mig->memory_mb << 20 : gpu->memory;
    memory->reserved = mig ? 0 : gpu->reserved;
    memory->used = mig ? mig->used_mb << 20 : gpu->used;
    memory->free = memory->total - memory->reserved - memory->used;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetCudaComputeCapability(struct handle *device, int *major, int *minor)
{
    ENTER(nvmlDeviceGetCudaComputeCapability);
    *major = (int)gpu->cc_major;
    *minor = (int)gpu->cc_minor;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetArchitecture(struct handle *device, unsigned *architecture)
{
    ENTER(nvmlDeviceGetArchitecture);
    *architecture = gpu->arch;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetBrand(struct handle *device, unsigned *brand)
{
    ENTER(nvmlDeviceGetBrand);
    *brand = gpu->brand;
    return leave(SUCCESS);
}

/* MIG */

EXPORT int nvmlDeviceGetMigMode(struct handle *device, unsigned *current, unsigned *pending)
{
    ENTER(nvmlDeviceGetMigMode);
    GPU_ONLY;
    if (gpu->mig < 0)
        return leave(NOT_SUPPORTED);
    *current = (unsigned)gpu->mig;
    *pending = (unsigned)gpu->mig_pending;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct handle *device, unsigned *count)
{
    ENTER(nvmlDeviceGetMaxMigDeviceCount);
    GPU_ONLY;
    *count = gpu->mig == 1 ? (unsigned)gpu->mig_max : 0; /* zero where MIG is not enabled, says nvml.h */
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *device, unsigned index, struct handle **mig_device)
{
    ENTER(nvmlDeviceGetMigDeviceHandleByIndex);
    GPU_ONLY;
    if (gpu->mig != 1)
        return leave(NOT_SUPPORTED);
    if (index >= (unsigned)gpu->mig_max)
        return leave(INVALID_ARGUMENT);
    for (int i = 0; i < gpu->migs; i++) {
        struct mig *found = &gpu->mig_devices[i];
        if (found->index != index)
            continue;
        if (!sees(found))
            break;
        *mig_device = handle_of(gpu->uuid, found->uuid);
        return leave(SUCCESS);
    }
    return leave(NOT_FOUND);
}

EXPORT int nvmlDeviceIsMigDeviceHandle(struct handle *device, unsigned *is_mig)
{
    ENTER(nvmlDeviceIsMigDeviceHandle);
    *is_mig = mig != NULL;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct handle *device, struct handle **parent)
{
    ENTER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
    MIG_ONLY;
    *parent = handle_of(gpu->uuid, "");
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetGpuInstanceId(struct handle *device, unsigned *id)
{
    ENTER(nvmlDeviceGetGpuInstanceId);
    MIG_ONLY;
    *id = mig->gi;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetComputeInstanceId(struct handle *device, unsigned *id)
{
    ENTER(nvmlDeviceGetComputeInstanceId);
    MIG_ONLY;
    *id = mig->ci;
    return leave(SUCCESS);
}

/* Instances and their profiles: a GPU instance of so many slices, a compute instance in it. */

struct instance {
    struct handle *parent;
    struct instance *in; /* of a compute instance: its GPU instance */
    unsigned id, slices;
    struct instance *next;
};

struct instance_info {
    struct handle *device;
    unsigned id, profile, start, size;
};

struct compute_instance_info {
    struct handle *device;
    struct instance *in;
    unsigned id, profile, start, size;
};

struct profile_info {
    unsigned id, p2p, slices, rest[7];
    unsigned long long memory_mb;
};

struct compute_profile_info {
    unsigned id, slices, rest[7];
};

static const unsigned profile_slices[] = {1, 2, 3, 4, 7};
#define PROFILES (sizeof profile_slices / sizeof *profile_slices)

static unsigned profile_of(unsigned slices)
{
    unsigned at = 0;

    while (at + 1 < PROFILES && profile_slices[at] != slices)
        at++;
    return at;
}

static struct instance *instance_of(struct handle *parent, struct instance *in, unsigned id, unsigned slices)
{
    static struct instance *instances;
    struct instance *found;

    for (found = instances; found; found = found->next)
        if (found->parent == parent && found->in == in && found->id == id && found->slices == slices)
            return found;
    found = calloc(1, sizeof *found);
    if (!found)
        abort();
    *found = (struct instance){.parent = parent, .in = in, .id = id, .slices = slices, .next = instances};
    return instances = found;
}

EXPORT int nvmlDeviceGetGpuInstanceById(struct handle *device, unsigned id, struct instance **instance)
{
    ENTER(nvmlDeviceGetGpuInstanceById);
    GPU_ONLY;
    for (int i = 0; i < gpu->migs; i++)
        if (gpu->mig_devices[i].gi == id) {
            *instance = instance_of(device, NULL, id, gpu->mig_devices[i].slices);
            return leave(SUCCESS);
        }
    return leave(NOT_FOUND);
}

EXPORT int nvmlGpuInstanceGetComputeInstanceById(struct instance *in, unsigned id, struct instance **instance)
{
    struct handle *device = in->parent;
    ENTER(nvmlGpuInstanceGetComputeInstanceById);
    GPU_ONLY;
    for (int i = 0; i < gpu->migs; i++)
        if (gpu->mig_devices[i].gi == in->id && gpu->mig_devices[i].ci == id) {
            *instance = instance_of(device, in, id, gpu->mig_devices[i].ci_slices);
            return leave(SUCCESS);
        }
    return leave(NOT_FOUND);
}

EXPORT int nvmlGpuInstanceGetInfo(struct instance *instance, struct instance_info *info)
{
    struct handle *device = instance->parent;
    ENTER(nvmlGpuInstanceGetInfo);
    GPU_ONLY;
    *info = (struct instance_info){device, instance->id, profile_of(instance->slices), 0, instance->slices};
    return leave(SUCCESS);
}

EXPORT int nvmlComputeInstanceGetInfo_v2(struct instance *instance, struct compute_instance_info *info)
{
    struct handle *device = instance->parent;
    ENTER(nvmlComputeInstanceGetInfo_v2);
    GPU_ONLY;
    *info = (struct compute_instance_info){
        device, instance->in, instance->id, profile_of(instance->slices), 0, instance->slices,
    };
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetGpuInstanceProfileInfo(struct handle *device, unsigned profile, struct profile_info *info)
{
    ENTER(nvmlDeviceGetGpuInstanceProfileInfo);
    GPU_ONLY;
    if (profile >= PROFILES)
        return leave(NOT_SUPPORTED);
    *info = (struct profile_info){.id = profile, .slices = profile_slices[profile]};
    return leave(SUCCESS);
}

EXPORT int nvmlGpuInstanceGetComputeInstanceProfileInfo(struct instance *instance, unsigned profile, unsigned engines,
                                                        struct compute_profile_info *info)
{
    struct handle *device = instance->parent;
    ENTER(nvmlGpuInstanceGetComputeInstanceProfileInfo);
    GPU_ONLY;
    (void)engines;
    if (profile >= PROFILES || profile_slices[profile] > instance->slices)
        return leave(NOT_SUPPORTED);
    *info = (struct compute_profile_info){.id = profile, .slices = profile_slices[profile]};
    return leave(SUCCESS);
}

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, slices, ci_slices;
    unsigned long long memory_mb;
};

EXPORT int nvmlDeviceGetAttributes_v2(struct handle *device, struct attributes *attributes)
{
    ENTER(nvmlDeviceGetAttributes_v2);
    MIG_ONLY;
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessors = 14 * mig->ci_slices;
    attributes->copy_engines = 1;
    attributes->slices = mig->slices;
    attributes->ci_slices = mig->ci_slices;
    attributes->memory_mb = mig->memory_mb;
    return leave(SUCCESS);
}

/* Links */

static int link_at(struct gpu *gpu, unsigned number, struct link **link)
{
    if (!gpu->links)
        return NOT_SUPPORTED;
    if (number >= (unsigned)gpu->links)
        return INVALID_ARGUMENT;
    *link = &gpu->nvlinks[number];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetNvLinkState(struct handle *device, unsigned number, unsigned *active)
{
    struct link *link = NULL;
    ENTER(nvmlDeviceGetNvLinkState);
    GPU_ONLY;
    status = link_at(gpu, number, &link);
    if (!status)
        *active = (unsigned)link->active;
    return leave(status);
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct handle *device, unsigned number, struct pci_info *info)
{
    struct link *link = NULL;
    ENTER(nvmlDeviceGetNvLinkRemotePciInfo_v2);
    GPU_ONLY;
    status = link_at(gpu, number, &link);
    if (!status && !link->active)
        status = NOT_SUPPORTED;
    if (!status)
        fill_pci(link->remote, info);
    return leave(status);
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(struct handle *device, unsigned number, unsigned *type)
{
    struct link *link = NULL;
    ENTER(nvmlDeviceGetNvLinkRemoteDeviceType);
    GPU_ONLY;
    status = link_at(gpu, number, &link);
    if (!status && !link->active)
        status = NOT_SUPPORTED;
    if (!status)
        *type = (unsigned)link->type;
    return leave(status);
}

/* State and telemetry; a negative number in the scenario is something that the GPU does not tell */

EXPORT int nvmlDeviceGetTotalEccErrors(struct handle *device, unsigned type, unsigned counter, unsigned long long *count)
{
    long long value;
    ENTER(nvmlDeviceGetTotalEccErrors);
    GPU_ONLY;
    (void)counter;
    value = type == 1 ? gpu->ecc_uncorrected : gpu->ecc_corrected;
    if (value < 0)
        return leave(NOT_SUPPORTED);
    *count = (unsigned long long)value;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(struct handle *device, unsigned *pending)
{
    ENTER(nvmlDeviceGetRetiredPagesPendingStatus);
    GPU_ONLY;
    if (gpu->retired < 0)
        return leave(NOT_SUPPORTED);
    *pending = (unsigned)gpu->retired;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceGetRemappedRows(struct handle *device, unsigned *corrected, unsigned *uncorrected,
                                     unsigned *pending, unsigned *failed)
{
    ENTER(nvmlDeviceGetRemappedRows);
    GPU_ONLY;
    if (gpu->remap_pending < 0)
        return leave(NOT_SUPPORTED);
    *corrected = 0;
    *uncorrected = (unsigned)(gpu->remap_pending + gpu->remap_failed);
    *pending = (unsigned)gpu->remap_pending;
    *failed = (unsigned)gpu->remap_failed;
    return leave(SUCCESS);
}

/* nvmlEccSramErrorStatus_v1_t */
struct sram_status {
    unsigned version;
    unsigned long long counts[11];
    unsigned threshold_exceeded;
};

EXPORT int nvmlDeviceGetSramEccErrorStatus(struct handle *device, struct sram_status *told)
{
    ENTER(nvmlDeviceGetSramEccErrorStatus);
    GPU_ONLY;
    if (told->version != (sizeof(*told) | 1u << 24))
        return leave(ARGUMENT_VERSION_MISMATCH);
    if (gpu->sram_exceeded < 0)
        return leave(NOT_SUPPORTED);
    memset(told->counts, 0, sizeof(told->counts));
    told->threshold_exceeded = (unsigned)gpu->sram_exceeded;
    return leave(SUCCESS);
}

struct field_value {
    uint32_t field, scope;
    int64_t timestamp, latency;
    unsigned type;
    int status;
    union {
        double real;
        unsigned number;
        unsigned long long big;
    } value;
};

static int field_of(const struct gpu *gpu, struct field_value *value)
{
    switch (value->field) {
    case 38: case 45: case 52: case 59: /* NVLink: CRC of flits and data, replays, recoveries, each over all links */
        if (gpu->link_errors < 0)
            return NOT_SUPPORTED;
        value->type = 3;
        value->value.big = value->field == 38 ? (unsigned long long)gpu->link_errors : 0;
        return SUCCESS;
    case 91: /* number of links */
        value->type = 1;
        value->value.number = (unsigned)gpu->links;
        return SUCCESS;
    case 230: /* recovery action */
        if (!gpu->recovery_known)
            return NOT_SUPPORTED;
        value->type = 1;
        value->value.number = (unsigned)gpu->recovery;
        return SUCCESS;
    default:
        return INVALID_ARGUMENT;
    }
}

EXPORT int nvmlDeviceGetFieldValues(struct handle *device, int count, struct field_value *values)
{
    ENTER(nvmlDeviceGetFieldValues);
    GPU_ONLY;
    for (int i = 0; i < count; i++)
        values[i].status = field_of(gpu, &values[i]);
    return leave(SUCCESS);
}

static int number_of(long long value, unsigned *to)
{
    if (value < 0)
        return NOT_SUPPORTED;
    *to = (unsigned)value;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetTemperature(struct handle *device, unsigned sensor, unsigned *celsius)
{
    ENTER(nvmlDeviceGetTemperature);
    GPU_ONLY;
    (void)sensor;
    return leave(number_of(gpu->temperature, celsius));
}

EXPORT int nvmlDeviceGetPowerUsage(struct handle *device, unsigned *milliwatts)
{
    ENTER(nvmlDeviceGetPowerUsage);
    GPU_ONLY;
    return leave(number_of(gpu->power, milliwatts));
}

struct utilisation {
    unsigned gpu, memory;
};

EXPORT int nvmlDeviceGetUtilizationRates(struct handle *device, struct utilisation *rates)
{
    ENTER(nvmlDeviceGetUtilizationRates);
    GPU_ONLY;
    if (gpu->mig == 1)
        return leave(NOT_SUPPORTED); /* as the real one in MIG mode */
    rates->memory = 0;
    return leave(number_of(gpu->utilisation, &rates->gpu));
}

EXPORT int nvmlDeviceGetClockInfo(struct handle *device, unsigned type, unsigned *mhz)
{
    ENTER(nvmlDeviceGetClockInfo);
    GPU_ONLY;
    return leave(number_of(type == 2 ? gpu->memory_clock : gpu->sm_clock, mhz));
}

/* Events */

EXPORT int nvmlEventSetCreate(struct event_set **set)
{
    int status = gate("nvmlEventSetCreate", -2);

    if (!status && !(status = alive())) {
        *set = calloc(1, sizeof **set);
        if (!*set)
            abort();
        (*set)->init = session.number;
        for (int i = 0; i < scenario.events; i++)
            if (scenario.event[i].number > (*set)->last)
                (*set)->last = scenario.event[i].number;
    }
    return leave(status);
}

EXPORT int nvmlEventSetFree(struct event_set *set)
{
    int status = gate("nvmlEventSetFree", -2);

    if (!status)
        free(set);
    return leave(status);
}

EXPORT int nvmlDeviceGetSupportedEventTypes(struct handle *device, unsigned long long *types)
{
    ENTER(nvmlDeviceGetSupportedEventTypes);
    GPU_ONLY;
    *types = 0x1F;
    return leave(SUCCESS);
}

EXPORT int nvmlDeviceRegisterEvents(struct handle *device, unsigned long long types, struct event_set *set)
{
    ENTER(nvmlDeviceRegisterEvents);
    GPU_ONLY;
    if (set->registered == MAX_GPUS)
        return leave(UNKNOWN);
    strcpy(set->uuid[set->registered], gpu->uuid);
    set->types[set->registered++] = types;
    return leave(SUCCESS);
}

struct event_data {
    struct handle *device;
    unsigned long long type, data;
    unsigned gi, ci;
};

static int next_event(struct event_set *set, struct event_data *data)
{
    int lost = 0;

    for (int i = 0; i < scenario.events; i++) {
        struct event *event = &scenario.event[i];
        struct gpu *gpu = gpu_by_number(event->gpu);
        if (event->number <= set->last || !gpu)
            continue;
        set->last = event->number;
        for (int j = 0; j < set->registered; j++)
            if (!strcmp(set->uuid[j], gpu->uuid) && (set->types[j] & event->type)) {
                *data = (struct event_data){handle_of(gpu->uuid, ""), event->type, event->data, event->gi, event->ci};
                return SUCCESS;
            }
    }
    for (int j = 0; j < set->registered; j++)
        lost |= usable(gpu_by_uuid(set->uuid[j])) != SUCCESS;
    return lost ? GPU_IS_LOST : TIMEOUT;
}

EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct event_data *data, unsigned timeout_ms)
{
    double until = monotonic() + timeout_ms / 1000.0;
    int status;

    for (;;) {
        status = gate("nvmlEventSetWait_v2", -2);
        if (!status && !(status = alive()))
            status = set->init == session.number ? next_event(set, data) : UNINITIALIZED;
        pthread_mutex_unlock(&lock);
        if (status != TIMEOUT || monotonic() >= until)
            return status;
        pause_for(0.01);
    }
}
