/*
 * ring.h - the file through which records go from the training process to the writer.
 *
 * Two files in the dump folder, ".msprobe-<pid>-<n>.ring" and ".side". The ring is mapped by both sides; frames
 * (token.h) lie in it in the order of their commits, each padded to 8 bytes and never split over the end. Two positions
 * are counted in bytes since the beginning of time:
 *
 *     head   behind the newest whole frame; moved by the producer after the frame's bytes are there
 *     tail   behind the newest frame whose text is published; moved by the writer after publishing
 *
 * A frame is therefore in the ring until its text is safe: whoever dies, the other side or a later reader finds it.
 * What later frames refer to, units and call stacks, goes to the side file, appended with write(2), and stays there.
 *
 * Disk blocks are reserved when the ring is made: storing into a mapped hole of a full disk would be a SIGBUS in the
 * user's training. A file that somebody truncates, or whose server reports an error, raises that signal all the same.
 * Nothing but a handler can survive it: memory without a name (memfd) cannot be truncated, but is lost when both
 * processes are killed at once, and write(2) instead of a store costs a system call for each record. So while a ring
 * is open a handler of SIGBUS looks at the address of the fault. One inside a ring gets that ring's whole mapping
 * replaced by anonymous memory, and `lost` says so; every other fault goes to the handler that was there before.
 */
#ifndef MSP_COLLECT_RING_H
#define MSP_COLLECT_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include "collect/record.h"
#include "core/file.h"

enum { RING_HEADER = 4096 };

/* The first page of the ring file. */
typedef struct ring_shared {
    char magic[8]; /* "MSPRING2" */
    uint64_t capacity;
    int64_t producer_pid;
    uint64_t producer_start; /* field 22 of /proc/<pid>/stat: tells the process from a later one with its number */
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint32_t for_writer; /* it sleeps on it; bumped by whoever cannot wait for its next look */
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint32_t flushed; /* newest ticket that is published */
    _Atomic uint32_t closing; /* the producer has said goodbye */
    _Atomic uint32_t done;    /* the writer has finished: nothing is left */
    _Atomic int64_t writer_pid;
    _Atomic uint64_t writer_start;
    _Atomic uint32_t made;   /* so many units, the first ones, have their files: another writer goes on with them */
    _Atomic uint32_t over;   /* so many of these are complete and closed */
    _Atomic uint32_t failed; /* the writer cannot go on; error says why */
    char error[1024];
    _Atomic uint32_t for_producer; /* it sleeps on it; bumped when tail, flushed, done or failed is set */
    _Atomic uint32_t dozes;        /* the writer has seen nothing for a while, and its next look is far */
    _Atomic uint32_t beats;        /* counted up by the writer at each look, so that a stopped one can be told */
} ring_shared;

typedef struct msp_ring {
    ring_shared *shared; /* NULL: closed */
    unsigned char *data;
    size_t mapped;
    uint64_t capacity; /* as in shared, which is not to be trusted once the ring is lost */
    msp_watch *watch;
    _Atomic bool lost; /* the file was truncated or cannot be read: what is mapped now reaches nobody */
    int side_fd;
    char *path, *side_path;
    bool foreign; /* nobody knows who made it: what it names outside its own folder is not touched */
} msp_ring;

/* Make a ring in dir for this process. capacity is rounded up to a power of two. */
MSP_CHECK msp_status msp_ring_create(msp_ring *out, const char *dir, size_t capacity, msp_error *err);

/* Open one that exists; MSP_E_FORMAT when it is not a whole ring. */
MSP_CHECK msp_status msp_ring_open(msp_ring *out, const char *path, msp_error *err);

/* Unmap and close; remove also deletes both files. Accepts a zeroed ring. */
void msp_ring_close(msp_ring *r, bool remove);

/* Whether the file is gone from under its mapping, by what the handler saw or by the file's size now. */
bool msp_ring_is_lost(msp_ring *r);

/* What is said of a ring that is lost. Returns MSP_E_IO. */
msp_status msp_ring_lost_error(const msp_ring *r, msp_error *err);

/* The error that ended recording, which the writer has left there, or whoever waited for it. */
msp_status msp_ring_failed_error(const msp_ring *r, msp_error *err);

/* Copy a whole frame (its header's size set) into the ring and return where it stands, NULL: there is no room now. */
frame_header *msp_ring_put(msp_ring *r, const void *frame, size_t size);

/* The frame at position *at, or NULL when there is none; *at moves behind it. *bad is set when the ring is damaged. */
const frame_header *msp_ring_next(const msp_ring *r, uint64_t *at, bool *bad);

/* The file with this number beside the ring, for a frame that it cannot hold; MSP_E_INVALID: the path is too long. */
MSP_CHECK msp_status msp_ring_spill_path(const msp_ring *r, char *out, size_t size, unsigned number, msp_error *err);

/* Append a frame to the side file. */
MSP_CHECK msp_status msp_ring_side_put(msp_ring *r, const void *frame, size_t size, msp_error *err);

/* True when the process that made the ring, or its writer, is still there. */
bool msp_ring_producer_lives(const msp_ring *r);
bool msp_ring_writer_lives(const msp_ring *r);

/* This process as the ring knows processes: its start time, 0 when unknown. */
uint64_t msp_process_start(int64_t pid);

/* Whether a process is stopped, by SIGSTOP or by a debugger. */
bool msp_process_is_stopped(int64_t pid);

/*
 * Wake who sleeps on a word of the shared page, for_writer or for_producer, or sleep on it until somebody does, up to
 * ms milliseconds. seen is what the word was before the last look at whatever is waited for.
 */
void msp_ring_wake(_Atomic uint32_t *word);

/* Have the writer look soon, by waking it only when it would not by itself: on a virtual machine to wake a process
 * takes 30 to 50 us, as much as ten records. */
void msp_ring_nudge(msp_ring *r);
void msp_ring_wait(_Atomic uint32_t *word, uint32_t seen, int ms);

#endif
