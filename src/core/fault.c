/* fault.c - see fault.h. The handler calls nothing but mmap(), a bare system call, and reads atomics. */
#include "core/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#include "core/alloc.h"

enum { BLOCK = 256 };

/* addr is set last and cleared first: the handler believes nothing of a watch without it. */
struct msp_watch {
    _Atomic uintptr_t addr;
    _Atomic size_t size, from;
    _Atomic int kind;
    _Atomic(_Atomic bool *) lost;
    msp_watch *next_free; /* under the lock */
};

/* Blocks are linked when they are full of zeros and never given back: the handler may walk them at any time. */
typedef struct block {
    msp_watch watches[BLOCK];
    struct block *_Atomic next;
} block;

static block first_block;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static msp_watch *free_list;
static block *newest;
static size_t used_of_newest, count;
static uintptr_t page;
static struct sigaction before; /* what the program had; written while the handler is not installed */

/* ---- the handler ------------------------------------------------------------------------------------------------- */

/* A fault that is none of ours happens as it would without us. */
static void
pass_on(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler == SIG_DFL || (before.sa_handler == SIG_IGN && info->si_code > 0)) {
        /* the instruction is repeated with nobody to catch it; a signal that was sent is sent again */
        signal(number, SIG_DFL);
        if (info->si_code <= 0)
            raise(number);
    } else if (before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    }
}

static bool
replace_pages(msp_watch *w, uintptr_t addr, size_t size, uintptr_t at)
{
    bool ring = atomic_load(&w->kind) == MSP_WATCH_RING;
    uintptr_t from = ring ? addr : at / page * page;
    size_t offset = from > addr ? from - addr : 0, seen = atomic_load(&w->from);
    _Atomic bool *lost = atomic_load(&w->lost);

    if (mmap((void *)from, addr + size - from, ring ? PROT_READ | PROT_WRITE : PROT_READ,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        return false;
    while (offset < seen && !atomic_compare_exchange_weak(&w->from, &seen, offset)) {
    }
    if (lost != NULL)
        atomic_store(lost, true);
    return true;
}

static void
on_fault(int number, siginfo_t *info, void *context)
{
    const uintptr_t at = (uintptr_t)info->si_addr;

    for (block *b = &first_block; info->si_code > 0 && b != NULL; b = atomic_load(&b->next))
        for (int i = 0; i < BLOCK; i++) {
            msp_watch *w = &b->watches[i];
            const uintptr_t addr = atomic_load(&w->addr);
            const size_t size = (atomic_load(&w->size) + page - 1) / page * page; /* vectors reach beyond the end */

            if (addr != 0 && at >= addr && at - addr < size && replace_pages(w, addr, size, at))
                return;
        }
    pass_on(number, info, context);
}

static bool
is_installed(void)
{
    struct sigaction now;

    return sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault;
}

/* A program that has put a handler of its own over ours gets it called for what is its own. */
static void
install_handler(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

    if (is_installed())
        return;
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &before) == 0)
        sigaction(SIGBUS, &ours, NULL);
}

/* ---- watches ----------------------------------------------------------------------------------------------------- */

static void
take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void
give_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* A child that is forked while another thread holds the lock must be able to take it. */
static void
prepare_watches(void)
{
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    newest = &first_block;
    pthread_atfork(take_lock, give_lock, give_lock);
}

static msp_watch *
new_watch(void)
{
    msp_watch *w = free_list;
    block *b;

    if (w != NULL) {
        free_list = w->next_free;
        return w;
    }
    if (used_of_newest == BLOCK) {
        b = msp_alloc_zero(1, sizeof(*b));
        if (b == NULL)
            return NULL;
        atomic_store(&newest->next, b);
        newest = b;
        used_of_newest = 0;
    }
    return &newest->watches[used_of_newest++];
}

msp_watch *
msp_watch_begin(void *addr, size_t size, msp_watch_kind kind, _Atomic bool *lost)
{
    msp_watch *w;

    pthread_once(&once, prepare_watches);
    take_lock();
    w = new_watch();
    if (w != NULL) {
        atomic_store(&w->size, size);
        atomic_store(&w->from, SIZE_MAX);
        atomic_store(&w->kind, (int)kind);
        atomic_store(&w->lost, lost);
        atomic_store(&w->addr, (uintptr_t)addr);
        if (count++ == 0 || kind == MSP_WATCH_RING)
            install_handler();
    }
    give_lock();
    return w;
}

size_t
msp_watch_lost_from(const msp_watch *w)
{
    return w == NULL ? SIZE_MAX : atomic_load(&((msp_watch *)w)->from);
}

void
msp_watch_end(msp_watch *w)
{
    if (w == NULL)
        return;
    take_lock();
    atomic_store(&w->addr, 0);
    w->next_free = free_list;
    free_list = w;
    if (--count == 0 && is_installed())
        sigaction(SIGBUS, &before, NULL);
    give_lock();
}

void
msp_signals_of_others(sigset_t *out)
{
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP};

    sigfillset(out);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        sigdelset(out, own[i]);
}
