/*
 * bench_io.c - tensor files: how long opening takes, and how fast saving writes.
 *
 *     bench_io open PATH      nanoseconds to open PATH, touch its first element and close it again
 *     bench_io save FOLDER    msp_pt_save() and msp_npy_save() against plain write() of the same bytes
 *
 * bench_io.py runs both and sets the first against torch.load().
 */
#include "bench.h"

#include <fcntl.h>
#include <unistd.h>
#include "msprobe/tensor.h"

static int
die(const char *what)
{
    fprintf(stderr, "bench_io: %s\n", what);
    return 1;
}

static void
open_once(const char *path)
{
    msp_error err;
    msp_tensor t;

    if (msp_tensor_open(&t, path, &err) != MSP_OK)
        exit(die(err.message));
    bench_keep(t.data);
    msp_tensor_release(&t);
}

static int
bench_open(const char *path)
{
    double s;

    /* a round takes as long as one torch.load(), of which the best counts as well */
    BENCH_BEST(s, 600, 64, open_once(path));
    printf("open.nanoseconds %.0f\n", s * 1e9);
    return 0;
}

/* What saving cannot be faster than: the same bytes in the same pieces, created and renamed in the same way. */
static void
write_plain(const char *path, const char *p, size_t n)
{
    char temp[4200];
    int fd;

    snprintf(temp, sizeof(temp), "%s.tmp", path);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    for (size_t at = 0; at < n;) {
        ssize_t k = write(fd, p + at, n - at);

        if (fd < 0 || k <= 0)
            exit(die("cannot write"));
        at += (size_t)k;
    }
    close(fd);
    if (rename(temp, path) != 0)
        exit(die("cannot rename"));
}

static void
save(msp_status (*function)(const char *, const msp_tensor *, msp_error *), const char *path, const msp_tensor *t)
{
    msp_error err;

    if (function(path, t, &err) != MSP_OK)
        exit(die(err.message));
}

static void
bench_save_size(const char *folder, const char *p, size_t n, int repeats, long calls)
{
    const int64_t shape[] = {(int64_t)n / 4};
    double plain = 1e99, pt = 1e99, npy = 1e99, s;
    char path[4096];
    msp_tensor t;

    snprintf(path, sizeof(path), "%s/bench.bin", folder);
    if (msp_tensor_view(&t, p, MSP_F32, 1, shape, NULL) != MSP_OK)
        exit(die("no tensor"));
    for (int i = 0; i < repeats; i++) { /* in turns, so that a busy disk slows all three */
        BENCH_BEST(s, 1, calls, write_plain(path, p, n));
        plain = bench_min(plain, s);
        BENCH_BEST(s, 1, calls, save(msp_pt_save, path, &t));
        pt = bench_min(pt, s);
        BENCH_BEST(s, 1, calls, save(msp_npy_save, path, &t));
        npy = bench_min(npy, s);
    }
    unlink(path);
    printf("save %9zu bytes: write() %8.1f us   .pt %8.1f us (%3.0f %% of its speed)   .npy %8.1f us (%3.0f %%)\n", n,
           plain * 1e6, pt * 1e6, 100 * plain / pt, npy * 1e6, 100 * plain / npy);
}

static int
bench_save(const char *folder)
{
    size_t largest = (size_t)128 << 20;
    char *p = bench_memory(largest);

    bench_save_size(folder, p, 4096, 20, 50);
    bench_save_size(folder, p, 1 << 20, 20, 5);
    bench_save_size(folder, p, largest, 5, 1);
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "open") == 0)
        return bench_open(argv[2]);
    if (argc == 3 && strcmp(argv[1], "save") == 0)
        return bench_save(argv[2]);
    return die("usage: bench_io open PATH | bench_io save FOLDER");
}
