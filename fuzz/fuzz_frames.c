/*
 * fuzz_frames.c - a ring and its side file as the writer reads them: what a killed process left is input like any
 * other, and whatever it is, the files of the dump stay whole.
 *
 * An input is made of
 *     u8   how many frames the first of two writers takes; 255: there is only one
 *     u8   where in the ring the frames begin, in steps of 256 bytes, so that they go round its end
 *     u16  bytes of the side file
 *     the side file, behind the four units that are always there, and then the ring
 * Units name folders, and FRAME_SPILL a file beside the ring to be read and removed: inputs with such frames of their
 * own are left out, since the target is not to touch what is not its own.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"
#include "collect/ring.h"
#include "collect/writer.h"
#include "core/alloc.h"
#include "core/file.h"
#include "text/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 4, ONE_WRITER = 255, RING_BYTES = 1 << 16 };

static char base[200]; /* the folder that all of it happens in */
static msp_ring ring;

/* ---- the folder -------------------------------------------------------------------------------------------------- */

static const char *const FOLDERS[] = {"dump", "debug", "ptdbg", "ptdbg/elements", "hooks"};

enum { NFOLDERS = sizeof(FOLDERS) / sizeof(*FOLDERS) };

static const char *
path_in(const char *folder, const char *name)
{
    static char path[600];

    snprintf(path, sizeof(path), "%s/%s%s%s", base, folder, name[0] == '\0' ? "" : "/", name);
    return path;
}

static void
empty_folders(void)
{
    for (size_t i = NFOLDERS; i-- > 0;) {
        DIR *d = opendir(path_in(FOLDERS[i], ""));
        const struct dirent *e;

        while (d != NULL && (e = readdir(d)) != NULL)
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                unlinkat(dirfd(d), e->d_name, 0);
        if (d != NULL)
            closedir(d);
    }
}

static void
remove_all(void)
{
    empty_folders();
    msp_ring_close(&ring, true);
    for (size_t i = NFOLDERS; i-- > 0;)
        rmdir(path_in(FOLDERS[i], ""));
    rmdir(base);
}

static void
make_all(void)
{
    const char *tmp = getenv("TMPDIR");

    if (base[0] != '\0')
        return;
    snprintf(base, sizeof(base), "%s/msprobe-fuzz.XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHECK(mkdtemp(base) != NULL);
    CHECK(msp_ring_create(&ring, base, RING_BYTES, NULL) == MSP_OK);
    CHECK(ring.shared->capacity == RING_BYTES);
    atexit(remove_all);
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

static void
put_unit(msp_unit_kind kind, const char *folder, const char *data_dir, const char *file)
{
    const char *texts[] = {path_in(folder, ""), "statistics", "L1", "pytorch", data_dir, file, "1"};
    msp_record r = {0};

    msp_record_frame(&r, FRAME_UNIT, (uint32_t)kind, (uint32_t)kind);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        msp_record_frame_text(&r, texts[i], strlen(texts[i]));
    CHECK(!r.failed);
    ((frame_header *)r.p)->size = (uint32_t)r.len;
    CHECK(msp_ring_side_put(&ring, r.p, r.len, NULL) == MSP_OK);
    msp_record_release(&r);
}

/* False: it would open a folder of its own. */
static bool
fill_side(const uint8_t *data, size_t size)
{
    char elements[600];

    for (size_t at = 0; at + sizeof(frame_header) <= size;) {
        frame_header h;

        memcpy(&h, data + at, sizeof(h));
        if (h.kind == FRAME_UNIT)
            return false;
        if (h.size < sizeof(h))
            break;
        at += h.size;
    }
    CHECK(ftruncate(ring.side_fd, 0) == 0);
    snprintf(elements, sizeof(elements), "%s", path_in("ptdbg/elements", ""));
    put_unit(MSP_UNIT_DUMP, "dump", "", "");
    put_unit(MSP_UNIT_DEBUG, "debug", "", "");
    put_unit(MSP_UNIT_PTDBG, "ptdbg", elements, "ptdbg.pkl");
    put_unit(MSP_UNIT_HOOKS, "hooks", "", "hooks.pkl");
    CHECK(size == 0 || msp_ring_side_put(&ring, data, size, NULL) == MSP_OK);
    return true;
}

/* The ring as its producer leaves it, with everything that a writer has done forgotten. */
static void
fill_ring(const uint8_t *data, size_t size, uint64_t begin)
{
    ring_shared *s = ring.shared;
    const uint64_t padded = (size + 7) & ~(uint64_t)7;

    memset(ring.data, 0, RING_BYTES);
    for (size_t i = 0; i < size; i++)
        ring.data[(begin + i) % RING_BYTES] = data[i];
    atomic_store(&s->tail, begin);
    atomic_store(&s->head, begin + padded);
    atomic_store(&s->made, 0);
    atomic_store(&s->over, 0);
    atomic_store(&s->flushed, 0);
    atomic_store(&s->done, 0);
    atomic_store(&s->failed, 0);
    atomic_store(&s->closing, 1);
}

/* Behind so many frames; false: one of them names a file. */
static bool
find_position(uint64_t *out, unsigned frames)
{
    uint64_t at = atomic_load(&ring.shared->tail);
    const frame_header *h;
    bool bad = false;

    *out = at;
    for (unsigned n = 0; (h = msp_ring_next(&ring, &at, &bad)) != NULL; n++) {
        if (h->kind == FRAME_SPILL)
            return false;
        if (n < frames)
            *out = at;
    }
    return true;
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

static void
check_json(const char *text, size_t size)
{
    msp_json_doc doc;

    CHECK(msp_json_parse(&doc, text, size, NULL) == MSP_OK);
    msp_json_doc_release(&doc);
}

static void
check_file(const char *folder, const char *name, bool lines, bool must)
{
    char *text, *line, *end;
    size_t size;

    if (access(path_in(folder, name), F_OK) != 0) {
        CHECK(!must);
        return;
    }
    CHECK(msp_file_read(&text, &size, path_in(folder, name), UINT32_MAX, NULL) == MSP_OK);
    if (!lines)
        check_json(text, size);
    for (line = text; lines && line < text + size; line = end + 1) {
        end = memchr(line, '\n', size - (size_t)(line - text));
        CHECK(end != NULL);
        check_json(line, (size_t)(end - line));
    }
    msp_free(text);
}

/* A damaged ring ends the writer; no memory, no disk or a name that no file can have is no excuse here. */
static void
serve(bool *whole)
{
    msp_status st = msp_writer_serve(&ring, NULL, NULL);

    CHECK(st == MSP_OK || st == MSP_E_FORMAT);
    CHECK((st == MSP_OK) == (atomic_load(&ring.shared->done) != 0));
    *whole = st == MSP_OK;
    check_file("dump", "dump.json", false, *whole);
    check_file("dump", "stack.json", false, *whole);
    check_file("dump", "construct.json", false, *whole);
    check_file("debug", "debug.json", false, *whole);
    check_file("ptdbg", "ptdbg.pkl", true, *whole);
    check_file("hooks", "hooks.pkl", true, *whole);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t all, first;
    uint16_t side;
    bool whole = true;

    if (size < HEAD)
        return 0;
    memcpy(&side, data + 2, sizeof(side));
    if (side > size - HEAD || size - HEAD - side > RING_BYTES)
        return 0;
    make_all();
    if (!fill_side(data + HEAD, side))
        return 0;
    fill_ring(data + HEAD + side, size - HEAD - side, (uint64_t)data[1] * 256);
    if (!find_position(&first, data[0]))
        return 0;
    all = atomic_load(&ring.shared->head);
    if (data[0] != ONE_WRITER) {
        atomic_store(&ring.shared->head, first);
        serve(&whole);
        atomic_store(&ring.shared->done, 0);
    }
    atomic_store(&ring.shared->head, all);
    if (whole)
        serve(&whole);
    empty_folders();
    return 0;
}
