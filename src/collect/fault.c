/* fault.c - see fault.h. The handler calls nothing but mmap(), a bare system call, and reads atomics. */
#include "collect/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

enum { WATCHED_MAX = 64 };

/* addr is set last and cleared first: the handler believes nothing of a slot without it. */
typedef struct watched {
    _Atomic uintptr_t addr;
    _Atomic size_t size;
    _Atomic(_Atomic bool *) lost;
} watched;

static watched slots[WATCHED_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int count;
static struct sigaction before; /* what the program had; written while the handler is not installed */

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

static void
on_fault(int number, siginfo_t *info, void *context)
{
    const uintptr_t at = (uintptr_t)info->si_addr;

    for (int i = 0; info->si_code > 0 && i < WATCHED_MAX; i++) {
        const uintptr_t addr = atomic_load(&slots[i].addr);
        const size_t size = atomic_load(&slots[i].size);

        if (addr == 0 || at < addr || at - addr >= size)
            continue;
        if (mmap((void *)addr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                 -1, 0) == MAP_FAILED)
            break;
        atomic_store(atomic_load(&slots[i].lost), true);
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
install(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

    if (is_installed())
        return;
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &before) == 0)
        sigaction(SIGBUS, &ours, NULL);
}

bool
msp_fault_watch(void *addr, size_t size, _Atomic bool *lost)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < WATCHED_MAX && !found; i++) {
        if (atomic_load(&slots[i].addr) != 0)
            continue;
        atomic_store(&slots[i].size, size);
        atomic_store(&slots[i].lost, lost);
        atomic_store(&slots[i].addr, (uintptr_t)addr);
        found = true;
        count++;
        install();
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void
msp_fault_forget(void *addr)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < WATCHED_MAX; i++) {
        if (atomic_load(&slots[i].addr) != (uintptr_t)addr)
            continue;
        atomic_store(&slots[i].addr, 0);
        if (--count == 0 && is_installed())
            sigaction(SIGBUS, &before, NULL);
    }
    pthread_mutex_unlock(&lock);
}
