/*
 * The part of the engine `qemu` that runs inside the emulator.
 *
 * Tells the blocks and memory accesses of one thread's window through a ring in shared memory. The
 * thread is the one that comes to the window's start; what all others do is not told. It decides
 * nothing: what an access belongs to and where the window ends is worked out by the reader.
 *
 * The functions and types of QEMU's plugin interface are declared here from its documentation, as
 * far as they are used. They are the same in versions 1 and newer, but for `insn_data`, see below.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct info {
    const char *target_name;
    struct { int min, cur; } version;
    bool system_emulation;
    struct { int smp_vcpus, max_vcpus; } system;
};
typedef void (*vcpu_cb)(plugin_id, unsigned);
typedef void (*exec_cb)(unsigned, void *);
typedef void (*mem_cb)(unsigned, uint32_t, uint64_t, void *);
typedef void (*trans_cb)(plugin_id, struct qemu_plugin_tb *);
typedef void (*syscall_cb)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t);
typedef void (*syscall_ret_cb)(plugin_id, unsigned, int64_t, int64_t);
enum { NO_REGISTERS = 0, LOADS_AND_STORES = 3 };

void qemu_plugin_register_vcpu_init_cb(plugin_id, vcpu_cb);
void qemu_plugin_register_vcpu_exit_cb(plugin_id, vcpu_cb);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, trans_cb);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, exec_cb, int, void *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, exec_cb, int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, mem_cb, int, int, void *);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, syscall_cb);
void qemu_plugin_register_vcpu_syscall_ret_cb(plugin_id, syscall_ret_cb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
unsigned qemu_plugin_mem_size_shift(uint32_t);
bool qemu_plugin_mem_is_store(uint32_t);
/* Up to version 2 it returns the bytes, from version 3 on it copies them; the symbol is the same. */
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);

#ifndef API_VERSION
#define API_VERSION 1
#endif
EXPORT int qemu_plugin_version = API_VERSION;

/* Words of the control page; `channel.rs` has the same list. */
enum {
    MAGIC = 0, RING_WORDS = 1, WANTS_MEMORY = 2, SKIP = 3, INSTALLED = 4,
    HEAD = 8, TAIL = 16, DONE = 24,
    REQUEST = 32, ANSWER = 33, START = 34, MAP_START = 35, MAP_END = 36, MAP_OFFSET = 37,
    PATH_BYTES = 38, ARRIVALS = 39, MOST_THREADS = 40, EXECUTING = 41, OVER = 42,
    PATH = 64, CONTROL_WORDS = 1024
};
#define MAGIC_VALUE 0x31766e6f73756d65ull
#define PATH_MOST ((CONTROL_WORDS - PATH) * 8)
/* Kinds of words in the ring, in the two highest bits. */
#define RUN (1ull << 62)
#define DESCRIBE (2ull << 62)
#define OTHER (3ull << 62)
#define STARTED (OTHER | 1ull << 56)
#define REACHED (OTHER | 2ull << 56)
#define ADDRESS_BITS 48
#define LOW(address) ((address) & ((1ull << ADDRESS_BITS) - 1))
#define LONGEST_INSN 16

enum mode { WAITING, FOLLOWING, SILENT };
enum end { PLAIN, CALL, RETURN };

struct insn {
    uint64_t vaddr;
    uint8_t size, bytes[LONGEST_INSN];
};
struct block {
    uint32_t number, count;
    bool described;
    enum end end;
    struct insn insns[];
};
/* For the callbacks that need more than an index. */
struct spot {
    struct block *block;
    uint32_t index;
};
struct frame {
    uint64_t slot, back;
};
/* The calls that a thread is in, the last ones, so that the start of a window knows its caller. */
#define MOST_FRAMES 1024
struct calls {
    uint32_t depth;
    enum end pending;
    uint64_t pending_back;
    struct frame frames[MOST_FRAMES];
};
#define MOST_VCPUS 65536

static uint64_t *control, *ring;
static uint64_t head, seen_tail, ring_words;
static volatile enum mode mode = SILENT;
static unsigned followed;
static uint32_t blocks;
static bool is_arm, wants_memory, copies_data;
static struct calls *calls_of[MOST_VCPUS];
static unsigned threads;
static pthread_mutex_t translation = PTHREAD_MUTEX_INITIALIZER;

static uint64_t load(unsigned word) { return __atomic_load_n(&control[word], __ATOMIC_ACQUIRE); }
static void store(unsigned word, uint64_t value)
{
    __atomic_store_n(&control[word], value, __ATOMIC_RELEASE);
}
static void nap(void)
{
    struct timespec time = {0, 50000};
    nanosleep(&time, NULL);
}

/* Waits until the ring has room; false when nobody wants it any more. */
static bool has_room(uint64_t words)
{
    while (head + words - seen_tail > ring_words) {
        if (load(DONE)) {
            mode = SILENT;
            return false;
        }
        seen_tail = load(TAIL);
        if (head + words - seen_tail > ring_words)
            nap();
    }
    return true;
}
static inline void put(uint64_t word) { ring[head++ & (ring_words - 1)] = word; }
static inline void publish(void) { __atomic_store_n(&control[HEAD], head, __ATOMIC_RELEASE); }

static void describe(struct block *block)
{
    if (block->described || !has_room(1 + 3 * (uint64_t)block->count))
        return;
    block->described = true;
    put(DESCRIBE | (uint64_t)block->count << 32 | block->number);
    for (uint32_t i = 0; i < block->count; i++) {
        uint64_t bytes[2];
        memcpy(bytes, block->insns[i].bytes, sizeof bytes);
        put(LOW(block->insns[i].vaddr) | (uint64_t)block->insns[i].size << ADDRESS_BITS);
        put(bytes[0]);
        put(bytes[1]);
    }
    publish();
}

static struct calls *calls(unsigned vcpu)
{
    return vcpu < MOST_VCPUS ? calls_of[vcpu] : NULL;
}
static void enter(struct calls *calls, uint64_t slot, uint64_t back)
{
    if (calls->depth == MOST_FRAMES) {
        memmove(calls->frames, calls->frames + MOST_FRAMES / 2,
                MOST_FRAMES / 2 * sizeof *calls->frames);
        calls->depth = MOST_FRAMES / 2;
    }
    calls->frames[calls->depth++] = (struct frame){slot, back};
}
static void leave_below(struct calls *calls, uint64_t slot)
{
    while (calls->depth && calls->frames[calls->depth - 1].slot <= slot)
        calls->depth--;
}

/* Where calls store nothing, frames are kept by where they return to. The call or return at the end
 * of a block takes place when the next one begins. */
static void next_block_without_stack(struct calls *calls, const struct block *block)
{
    if (calls->pending == CALL) {
        enter(calls, 0, calls->pending_back);
    } else if (calls->pending == RETURN) {
        for (uint32_t i = calls->depth; i-- > 0;)
            if (calls->frames[i].back == block->insns[0].vaddr) {
                calls->depth = i;
                break;
            }
    }
    const struct insn *last = &block->insns[block->count - 1];
    calls->pending = block->end;
    calls->pending_back = last->vaddr + last->size;
}

static void on_block(unsigned vcpu, void *data)
{
    struct block *block = data;
    if (mode == FOLLOWING) {
        if (vcpu != followed)
            return;
        describe(block);
        if (!has_room(1))
            return;
        put(RUN | block->number);
        publish();
    } else if (mode == WAITING && is_arm && calls(vcpu)) {
        next_block_without_stack(calls(vcpu), block);
    }
}

static void on_memory(unsigned vcpu, uint32_t info, uint64_t vaddr, void *index)
{
    if (mode != FOLLOWING || vcpu != followed || !has_room(1))
        return;
    put(LOW(vaddr) | (uint64_t)(qemu_plugin_mem_size_shift(info) & 7) << 48 |
        (uint64_t)qemu_plugin_mem_is_store(info) << 51 | (uint64_t)(uintptr_t)index << 52);
    publish();
}

static void on_call(unsigned vcpu, uint32_t info, uint64_t vaddr, void *data)
{
    const struct spot *spot = data;
    if (mode == FOLLOWING) {
        on_memory(vcpu, info, vaddr, (void *)(uintptr_t)spot->index);
    } else if (mode == WAITING && calls(vcpu) && qemu_plugin_mem_is_store(info)) {
        const struct insn *insn = &spot->block->insns[spot->index];
        leave_below(calls(vcpu), vaddr);
        enter(calls(vcpu), vaddr, insn->vaddr + insn->size);
    }
}

static void on_return(unsigned vcpu, uint32_t info, uint64_t vaddr, void *data)
{
    const struct spot *spot = data;
    if (mode == FOLLOWING)
        on_memory(vcpu, info, vaddr, (void *)(uintptr_t)spot->index);
    else if (mode == WAITING && calls(vcpu))
        leave_below(calls(vcpu), vaddr);
}

static void on_reached(unsigned vcpu, void *data)
{
    if (mode != FOLLOWING || vcpu != followed || !has_room(1))
        return;
    put(REACHED | (uint64_t)(uintptr_t)data);
    publish();
}

static void on_start(unsigned vcpu, void *data)
{
    struct spot *spot = data;
    if (mode != WAITING)
        return;
    if (__atomic_fetch_add(&control[ARRIVALS], 1, __ATOMIC_ACQ_REL) != load(SKIP))
        return;
    const struct calls *own = calls(vcpu);
    struct frame caller = {0, 0};
    if (own && own->depth)
        caller = own->frames[own->depth - 1];
    followed = vcpu;
    describe(spot->block);
    if (!has_room(4))
        return;
    put(STARTED);
    put((uint64_t)spot->index << 32 | spot->block->number);
    put(caller.slot);
    put(caller.back);
    publish();
    store(MOST_THREADS, threads);
    mode = FOLLOWING;
}

/* Ranges whose files the reader knows. */
#define MOST_RANGES 4096
static struct { uint64_t start, end; } ranges[MOST_RANGES];
static unsigned range_count;

static void ask(uint64_t start, uint64_t end, uint64_t offset, const char *path)
{
    size_t length = strlen(path);
    length = length > PATH_MOST ? PATH_MOST : length;
    control[MAP_START] = start;
    control[MAP_END] = end;
    control[MAP_OFFSET] = offset;
    control[PATH_BYTES] = length;
    memcpy(&control[PATH], path, length);
    uint64_t number = load(REQUEST) + 1;
    store(REQUEST, number);
    while (load(ANSWER) != number)
        nap();
}

/* Tells the reader which file lies at `host`, unless it knows, and waits until it has looked
 * whether the window starts in there. */
static void tell_file(uint64_t host, uint64_t guest)
{
    for (unsigned i = range_count; i-- > 0;)
        if (ranges[i].start <= host && host < ranges[i].end)
            return;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, maps) > 0) {
        unsigned long long start, end, offset;
        int at = 0;
        if (sscanf(line, "%llx-%llx %*s %llx %*s %*s %n", &start, &end, &offset, &at) < 3)
            continue;
        if (host < start || host >= end)
            continue;
        line[strcspn(line, "\n")] = 0;
        if (range_count == MOST_RANGES)
            range_count = 0;
        ranges[range_count].start = start;
        ranges[range_count++].end = end;
        ask(start - host + guest, end - host + guest, offset, at ? line + at : "");
        break;
    }
    free(line);
    fclose(maps);
}

static size_t behind_prefixes(const struct insn *insn)
{
    size_t at = 0;
    while (at < insn->size) {
        uint8_t byte = insn->bytes[at];
        bool prefix = (byte & 0xf0) == 0x40 || byte == 0x66 || byte == 0x67 || byte == 0xf0 ||
                      byte == 0xf2 || byte == 0xf3 || byte == 0x2e || byte == 0x36 ||
                      byte == 0x3e || byte == 0x26 || byte == 0x64 || byte == 0x65;
        if (!prefix)
            break;
        at++;
    }
    return at < LONGEST_INSN - 1 ? at : LONGEST_INSN - 2;
}

static enum end end_of(const struct insn *insn)
{
    if (is_arm) {
        uint32_t word;
        memcpy(&word, insn->bytes, sizeof word);
        if (word >> 26 == 0x25 || (word & 0xfefff000) == 0xd63f0000)
            return CALL;
        return (word & 0xfffff000) == 0xd65f0000 ? RETURN : PLAIN;
    }
    size_t at = behind_prefixes(insn);
    uint8_t code = insn->bytes[at], extension = insn->bytes[at + 1] >> 3 & 7;
    if (code == 0xe8 || (code == 0xff && (extension == 2 || extension == 3)))
        return CALL;
    return code == 0xc3 || code == 0xc2 ? RETURN : PLAIN;
}

/* Divisions fault without touching memory, in the middle of a block. */
static bool may_fault_quietly(const struct insn *insn)
{
    if (is_arm)
        return false;
    size_t at = behind_prefixes(insn);
    uint8_t code = insn->bytes[at], extension = insn->bytes[at + 1] >> 3 & 7;
    return (code == 0xf6 || code == 0xf7) && extension >= 6;
}

static void *spot(struct block *block, uint32_t index)
{
    struct spot *spot = malloc(sizeof *spot);
    if (spot)
        *spot = (struct spot){block, index};
    return spot;
}

static void instrument(struct qemu_plugin_insn *handle, struct block *block, uint32_t i)
{
    const struct insn *insn = &block->insns[i];
    void *index = (void *)(uintptr_t)i;
    enum end end = end_of(insn);
    if (!is_arm && end != PLAIN)
        qemu_plugin_register_vcpu_mem_cb(handle, end == CALL ? on_call : on_return, NO_REGISTERS,
                                         LOADS_AND_STORES, spot(block, i));
    else if (wants_memory)
        qemu_plugin_register_vcpu_mem_cb(handle, on_memory, NO_REGISTERS, LOADS_AND_STORES, index);
    if (i > 0 && may_fault_quietly(&block->insns[i - 1]))
        qemu_plugin_register_vcpu_insn_exec_cb(handle, on_reached, NO_REGISTERS, index);
    if (insn->vaddr == control[START] && control[START])
        qemu_plugin_register_vcpu_insn_exec_cb(handle, on_start, NO_REGISTERS, spot(block, i));
}

static void on_translation(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(tb);
    if (mode == SILENT || count == 0)
        return;
    pthread_mutex_lock(&translation);
    struct block *block = calloc(1, sizeof *block + count * sizeof *block->insns);
    if (block) {
        block->number = blocks++;
        block->count = count;
        for (size_t i = 0; i < count; i++) {
            struct qemu_plugin_insn *handle = qemu_plugin_tb_get_insn(tb, i);
            struct insn *insn = &block->insns[i];
            size_t size = qemu_plugin_insn_size(handle);
            insn->size = size < LONGEST_INSN ? size : LONGEST_INSN;
            insn->vaddr = qemu_plugin_insn_vaddr(handle);
            const void *data = qemu_plugin_insn_data(handle, insn->bytes, insn->size);
            if (!copies_data)
                memcpy(insn->bytes, data, insn->size);
            if (i == 0)
                tell_file((uint64_t)(uintptr_t)qemu_plugin_insn_haddr(handle), insn->vaddr);
            instrument(handle, block, i);
        }
        block->end = end_of(&block->insns[count - 1]);
        qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, block);
    }
    pthread_mutex_unlock(&translation);
}

static void on_thread(plugin_id id, unsigned vcpu)
{
    (void)id;
    if (mode == SILENT)
        return;
    if (vcpu < MOST_VCPUS) {
        if (!calls_of[vcpu])
            calls_of[vcpu] = malloc(sizeof **calls_of);
        if (calls_of[vcpu])
            calls_of[vcpu]->depth = calls_of[vcpu]->pending = 0;
    }
    unsigned now = __atomic_add_fetch(&threads, 1, __ATOMIC_ACQ_REL);
    if (now > load(MOST_THREADS))
        store(MOST_THREADS, now);
}

static void on_thread_end(plugin_id id, unsigned vcpu)
{
    (void)id;
    if (mode == SILENT)
        return;
    __atomic_sub_fetch(&threads, 1, __ATOMIC_ACQ_REL);
    if (mode == FOLLOWING && vcpu == followed) {
        mode = SILENT;
        store(OVER, 1);
    }
}

static bool replaces_program(int64_t number)
{
    return is_arm ? number == 221 || number == 281 : number == 59 || number == 322;
}

static void on_syscall(plugin_id id, unsigned vcpu, int64_t number, uint64_t a, uint64_t b,
                       uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)vcpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (mode == SILENT)
        return;
    if (replaces_program(number))
        store(EXECUTING, 1);
    /* munmap: what is mapped there next may be another file. */
    if (number == (is_arm ? 215 : 11)) {
        pthread_mutex_lock(&translation);
        range_count = 0;
        pthread_mutex_unlock(&translation);
    }
}

static void on_syscall_return(plugin_id id, unsigned vcpu, int64_t number, int64_t result)
{
    (void)id, (void)vcpu, (void)result;
    if (mode != SILENT && replaces_program(number))
        store(EXECUTING, 0);
}

/* A child goes its own way. */
static void in_child(void)
{
    mode = SILENT;
}

EXPORT int qemu_plugin_install(plugin_id id, const struct info *info, int argc, char **argv)
{
    const char *path = argc == 1 && !strncmp(argv[0], "control=", 8) ? argv[0] + 8 : "";
    int file = open(path, O_RDWR | O_CLOEXEC);
    off_t size = file < 0 ? -1 : lseek(file, 0, SEEK_END);
    if (size < (off_t)CONTROL_WORDS * 8) {
        fprintf(stderr, "stallscope's plugin: cannot open %s\n", path);
        return 1;
    }
    control = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (control == MAP_FAILED || control[MAGIC] != MAGIC_VALUE)
        return 1;
    ring = control + CONTROL_WORDS;
    ring_words = control[RING_WORDS];
    wants_memory = control[WANTS_MEMORY];
    is_arm = !strcmp(info->target_name, "aarch64");
    copies_data = info->version.cur >= 3;
    mode = WAITING;
    pthread_atfork(NULL, NULL, in_child);
    qemu_plugin_register_vcpu_init_cb(id, on_thread);
    qemu_plugin_register_vcpu_exit_cb(id, on_thread_end);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, on_syscall_return);
    store(INSTALLED, 1);
    return 0;
}
