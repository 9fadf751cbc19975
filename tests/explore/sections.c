/*
 * Sections, one instruction at a time. The first instruction of each is overwritten by an illegal one. The handler of
 * the signal executes the section's machine code on the registers that it finds. Before an instruction that touches
 * memory the thread is at a point.
 */
#define _GNU_SOURCE
#include "explore.h"
#include "platform/rseq/rseq.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

/* Of the kernel (linux/rseq.h). */
struct section {
    uint32_t version, flags;
    uint64_t start, length, abort;
};
extern const struct section __start___rseq_cs[] __attribute__((visibility("hidden")));
extern const struct section __stop___rseq_cs[] __attribute__((visibility("hidden")));

/* What a thread has in the place of the area that libc registers. */
struct area {
    uint32_t cpu_id_start;
    int32_t cpu_id;
    uint64_t cs;
    uint32_t flags, node_id, mm_cid, unused;
};
static _Thread_local struct area area __attribute__((aligned(32), tls_model("initial-exec")));

#define ILLEGAL  0x06 /* in 64-bit code. Not a breakpoint, which a debugger would take for its own */
#define SECTIONS 4096
static unsigned char first_byte[SECTIONS];

uint64_t rseq_restarts;

enum rseq_owner rseq_probe(bool own, bool want_cid, struct rseq_area *where, bool *is_cid)
{
    uintptr_t start = (uintptr_t)&area;
    __asm__("" : "+r"(start)); /* or the compiler uses the offset in an instruction that linkers do not know */
    start -= (uintptr_t)__builtin_thread_pointer();
    (void)own, (void)want_cid;
    *is_cid = false;
    where->cs = start + RSEQ_CS_AT;
    where->slot = start + RSEQ_CPU_ID_AT;
    return RSEQ_LIBC;
}

bool rseq_stand_in(const struct rseq_area *where)
{
    (void)where;
    return true;
}

void rseq_renew(const struct rseq_area *where)
{
    (void)where;
}

void sections_area(struct thread *thread)
{
    area = (struct area){.cpu_id = (int32_t)thread->cpu};
    thread->cpu_field = &area.cpu_id;
}

void sections_prepare_on(unsigned cpu)
{
    area = (struct area){.cpu_id = (int32_t)cpu};
}

static uint64_t last(const struct section *section)
{
    return section->start + section->length;
}

static unsigned number(const struct section *section)
{
    return (unsigned)(section - __start___rseq_cs);
}

static const struct section *section_at(uint64_t start)
{
    for (const struct section *section = __start___rseq_cs; section < __stop___rseq_cs; section++)
        if (section->start == start)
            return section;
    return NULL;
}

void section_abort(struct thread *thread)
{
    if (thread->section)
        thread->aborted = true;
}

const char *section_where(const struct thread *thread)
{
    return thread->section ? "in a section" : "";
}

/* ---- instructions ---- */

/*
 * The few that sections consist of, executed here because a trap after each one takes too long in a virtual machine.
 * A section with another instruction ends the exploration.
 */
struct instruction {
    enum { LOAD, STORE, ADD, SUB, AND, COMPARE, TEST, MULTIPLY, SHIFT_LEFT, ADDRESS, JUMP } operation;
    unsigned size;        /* of the operands */
    unsigned memory_size; /* 0: the operand of ModRM is a register */
    bool own;             /* the memory is the thread's own, or a variable that no thread writes */
    bool to_memory;       /* the ModRM operand is the destination */
    bool with_number;     /* the other operand is `number` */
    unsigned reg, rm;
    uintptr_t at;
    int64_t number;
    unsigned condition;
    const unsigned char *next;
};

static uint64_t *reg(ucontext_t *context, unsigned n)
{
    static const int index[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t *)&context->uc_mcontext.gregs[index[n]];
}

static int64_t number_at(const unsigned char **code, unsigned size)
{
    int32_t n;
    if (size == 1)
        return (int8_t) * (*code)++;
    memcpy(&n, *code, 4);
    *code += 4;
    return n;
}

/* Reads the ModRM byte and what belongs to it. `behind`: bytes of a number that follows. */
static void operands(struct instruction *in, ucontext_t *context, const unsigned char **code, unsigned rex,
                     uint64_t segment, unsigned behind)
{
    unsigned mod = **code >> 6, rm = **code & 7;
    in->reg = (**code >> 3 & 7) | (rex & 4) << 1;
    in->rm = rm | (rex & 1) << 3;
    (*code)++;
    if (mod == 3)
        return;
    in->memory_size = in->size;
    in->own |= mod == 0 && rm == 5;
    if (mod == 0 && rm == 5) { /* from the next instruction */
        int64_t displacement = number_at(code, 4);
        in->at = (uintptr_t)*code + behind + (uintptr_t)displacement;
        return;
    }
    in->at = segment;
    if (rm == 4) {
        unsigned sib = *(*code)++, base = (sib & 7) | (rex & 1) << 3, index = (sib >> 3 & 7) | (rex & 2) << 2;
        if ((sib & 7) == 5 && mod == 0)
            in->at += (uintptr_t)number_at(code, 4);
        else
            in->at += *reg(context, base);
        if (index != 4)
            in->at += *reg(context, index) << (sib >> 6);
    } else {
        in->at += *reg(context, in->rm);
    }
    if (mod)
        in->at += (uintptr_t)number_at(code, mod == 1 ? 1 : 4);
}

static bool arithmetic(unsigned index, struct instruction *in)
{
    static const int known[8] = {ADD, -1, -1, -1, AND, SUB, -1, COMPARE};
    if (known[index] < 0)
        return false;
    in->operation = (unsigned)known[index];
    return true;
}

static bool decode_jump(struct instruction *in, const unsigned char **code, bool two, unsigned op)
{
    bool always = !two && (op == 0xeb || op == 0xe9), near = !two && ((op & 0xf0) == 0x70 || op == 0xeb);
    if (!always && !near && !(two && (op & 0xf0) == 0x80))
        return false;
    in->condition = always ? 16 : op & 15;
    in->number = number_at(code, near ? 1 : 4);
    return true;
}

static struct instruction decode(ucontext_t *context, const unsigned char *code)
{
    struct instruction in = {.size = 4};
    const unsigned char *start = code;
    unsigned rex = 0, op;
    uint64_t segment = 0;
    if (*code == 0x64) {
        segment = (uint64_t)__builtin_thread_pointer();
        in.own = true;
        code++;
    }
    if ((*code & 0xf0) == 0x40)
        rex = *code++;
    if (rex & 8)
        in.size = 8;
    op = *code++;
    bool two = op == 0x0f, known = true;
    if (two)
        op = *code++;
    if (decode_jump(&in, &code, two, op)) {
        in.operation = JUMP;
    } else if (two && op == 0xb7) {
        in.operation = LOAD;
        operands(&in, context, &code, rex, segment, 0);
        in.memory_size = 2;
    } else if (two && op == 0xaf) {
        in.operation = MULTIPLY;
        operands(&in, context, &code, rex, segment, 0);
    } else if (!two && (op == 0x8b || op == 0x89 || op == 0x8d || op == 0x85)) {
        in.operation = op == 0x8d ? ADDRESS : op == 0x85 ? TEST : op == 0x89 ? STORE : LOAD;
        in.to_memory = op == 0x89;
        operands(&in, context, &code, rex, segment, 0);
    } else if (!two && op < 0x40 && ((op & 7) == 1 || (op & 7) == 3)) {
        known = arithmetic(op >> 3, &in);
        in.to_memory = (op & 7) == 1;
        operands(&in, context, &code, rex, segment, 0);
    } else if (!two && (op == 0x81 || op == 0x83)) {
        known = arithmetic(*code >> 3 & 7, &in);
        in.to_memory = in.with_number = true;
        operands(&in, context, &code, rex, segment, op == 0x83 ? 1 : 4);
        in.number = number_at(&code, op == 0x83 ? 1 : 4);
    } else if (!two && op == 0xc1 && (*code >> 3 & 7) == 4) {
        in.operation = SHIFT_LEFT;
        in.to_memory = in.with_number = true;
        operands(&in, context, &code, rex, segment, 1);
        in.number = number_at(&code, 1);
    } else {
        known = false;
    }
    if (!known)
        explore_fail("explorer: a section has the unknown instruction %02x %02x %02x %02x", start[0], start[1],
                     start[2], start[3]);
    in.next = code;
    return in;
}

enum { CARRY = 1, ZERO = 64 };

static void set_flags(ucontext_t *context, bool zero, bool carry)
{
    greg_t *flags = &context->uc_mcontext.gregs[REG_EFL];
    *flags = (*flags & ~(greg_t)(CARRY | ZERO)) | (carry ? CARRY : 0) | (zero ? ZERO : 0);
}

static bool holds(ucontext_t *context, unsigned condition)
{
    greg_t flags = context->uc_mcontext.gregs[REG_EFL];
    bool is;
    switch (condition >> 1) {
    case 1:
        is = flags & CARRY;
        break;
    case 2:
        is = flags & ZERO;
        break;
    case 3:
        is = flags & (CARRY | ZERO);
        break;
    case 8:
        return true;
    default:
        explore_fail("explorer: a section has a jump with the unknown condition %u", condition);
    }
    return is != (condition & 1);
}

static uint64_t cut(uint64_t value, unsigned size)
{
    return size == 8 ? value : value & 0xffffffffu;
}

static uint64_t result(ucontext_t *context, const struct instruction *in, uint64_t old, uint64_t with)
{
    uint64_t new = with;
    switch (in->operation) {
    case ADD:
        new = cut(old + with, in->size);
        set_flags(context, !new, new < old);
        break;
    case SUB:
    case COMPARE:
        new = cut(old - with, in->size);
        set_flags(context, !new, old < with);
        break;
    case AND:
    case TEST:
        new = old &with;
        set_flags(context, !new, false);
        break;
    case MULTIPLY:
        new = cut(old * with, in->size);
        break;
    case SHIFT_LEFT:
        new = cut(old << with, in->size);
        break;
    case ADDRESS:
        new = cut(in->at, in->size);
        break;
    default:
        break;
    }
    return new;
}

/* Executes one instruction. `buffered`: its store stays in the buffer. */
static void step(ucontext_t *context, const struct instruction *in, bool buffered)
{
    uint64_t other = 0, value;
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)in->next;
    if (in->operation == JUMP) {
        if (holds(context, in->condition))
            context->uc_mcontext.gregs[REG_RIP] += in->number;
        return;
    }
    if (in->memory_size && in->operation != ADDRESS)
        memcpy(&other, (void *)in->at, in->memory_size);
    else
        other = cut(*reg(context, in->rm), in->size);
    uint64_t mine = in->with_number ? cut((uint64_t)in->number, in->size) : cut(*reg(context, in->reg), in->size);
    value = in->to_memory ? result(context, in, other, mine) : result(context, in, mine, other);
    if (in->operation == COMPARE || in->operation == TEST)
        return;
    if (!in->to_memory) {
        *reg(context, in->reg) = value;
    } else if (in->memory_size) {
        if (buffered)
            stores_expect(me, in->at, in->memory_size);
        memcpy((void *)in->at, &value, in->memory_size);
    } else {
        *reg(context, in->rm) = value;
    }
}

/* ---- traps ---- */

static const unsigned char *real_code(const struct section *section, const unsigned char *code, unsigned char *copy)
{
    if ((uint64_t)code != section->start)
        return code;
    memcpy(copy, code, 16);
    copy[0] = first_byte[number(section)];
    return copy;
}

/* Whether the address of the operand is relative to the instruction. */
static bool relative(const unsigned char *code)
{
    code += (*code & 0xf0) == 0x40;
    return (*code == 0x8b || *code == 0x8d) && (code[1] & 0xc7) == 5;
}

/* One instruction of the section, with what may happen before it. Returns false when the section was aborted. */
static bool advance(ucontext_t *context, const struct section *section)
{
    unsigned char copy[16];
    const unsigned char *code = (unsigned char *)context->uc_mcontext.gregs[REG_RIP];
    const unsigned char *real = real_code(section, code, copy);
    struct instruction in = decode(context, real);
    bool buffered = false;
    if (real != code && relative(real)) /* to where the instruction really is */
        in.at += (uintptr_t)code - (uintptr_t)real;
    in.next = code + (in.next - real);
    if (me && in.memory_size && !in.own && in.operation != ADDRESS) {
        bool writes = in.to_memory && in.operation != COMPARE && in.operation != TEST;
        buffered = point(writes ? WRITE : READ, in.at, in.memory_size, false);
        if (me->aborted)
            return false;
    }
    step(context, &in, buffered);
    return true;
}

/* Runs a section from its beginning to its end, in the context of the thread. */
static void trapped(int signal, siginfo_t *info, void *argument)
{
    ucontext_t *context = argument;
    uint64_t start = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
    const struct section *section = section_at(start);
    (void)signal, (void)info;
    if (!section)
        explore_fail("an illegal instruction at %#lx", start);
    if (me) {
        stores_settle(me);
        me->section = section;
        area.cpu_id = (int32_t)me->cpu;
    }
    uint64_t at = start;
    while (at >= section->start && at < last(section)) {
        if (!advance(context, section)) {
            context->uc_mcontext.gregs[REG_RIP] = (greg_t)section->abort;
            area.cs = 0;
            break;
        }
        at = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
    }
    if (me) {
        stores_settle(me);
        me->section = NULL;
        me->aborted = false;
    }
}

void sections_init(void)
{
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGILL, &action, NULL);
    for (const struct section *section = __start___rseq_cs; section < __stop___rseq_cs; section++) {
        unsigned char *code = (unsigned char *)section->start;
        uintptr_t page = (uintptr_t)code & ~4095ul;
        if (number(section) >= SECTIONS || mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC))
            explore_fail("explorer: the code of the sections cannot be changed");
        first_byte[number(section)] = *code;
        *code = ILLEGAL;
    }
}
