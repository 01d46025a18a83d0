/*
 * file.h - files mapped for reading, and files that appear whole or not at all.
 *
 * Error messages of this room name the path.
 */
#ifndef MSP_CORE_FILE_H
#define MSP_CORE_FILE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include "core/fault.h"
#include "msprobe/error.h"

typedef struct msp_mapping {
    const void *addr; /* NULL for an empty file */
    size_t size;
    enum { MSP_MAP_MAPPED, MSP_MAP_COPIED, MSP_MAP_LENT } kind; /* small files are read into memory instead */
    msp_watch *watch;                                           /* of what is mapped */
    uint64_t device, inode;
} msp_mapping;

/*
 * Map the regular file at path for reading. An empty file gives size 0. Where somebody cuts the file short while it
 * is mapped zeros are read past its new end: who has read it asks msp_map_check(). Files of up to 64 KiB are read,
 * which takes half the time that mapping them and touching their pages does.
 */
MSP_CHECK msp_status msp_map_open(msp_mapping *out, const char *path, msp_error *err);

/*
 * Map the file at a path that begins at the directory open as dir: who opens thousands saves the walk to it. A file
 * smaller than room_size is read into room, memory of the caller's: who has a block of his own anyway saves another
 * (size 0: there is none). The memory must live until msp_map_close(), which does not give it back; after that it can
 * serve for the next file. Meant for formats that notice when their end is missing: a file system that breaks its word
 * and reads less than there is before the end goes unnoticed here.
 */
MSP_CHECK msp_status msp_map_open_in(msp_mapping *out, void *room, size_t room_size, int dir, const char *path,
                                     msp_error *err);

/*
 * Is what was read what the file held when it was mapped? MSP_E_CHANGED when it was cut short meanwhile: then the
 * message is what went wrong, whatever the bytes seemed to say. path, which begins at the directory open as dir, is its
 * name.
 */
MSP_CHECK msp_status msp_map_check(const msp_mapping *m, int dir, const char *path, msp_error *err);

/* st, or what msp_map_check() says where that is worse: for readers that fail because of it. */
msp_status msp_map_blame(const msp_mapping *m, int dir, const char *path, msp_status st, msp_error *err);

/*
 * Tests: hook is called with the path of every file that was mapped, before anything of it is read. NULL ends that.
 * Process-wide.
 */
typedef void msp_map_hook(const char *path, void *payload);
void msp_map_on_open(msp_map_hook *hook, void *payload);

/* Accepts an empty mapping and leaves it empty. */
void msp_map_close(msp_mapping *m);

/* A small file that is read together with others. */
typedef struct msp_small_file {
    int dir;          /* the open directory in which it lies */
    char *room;       /* its name, ended by 0; in the same place, then, its bytes */
    size_t room_size; /* more than the file is expected to have */
    size_t size;      /* how many bytes were read; 0: there are more, or none, or it cannot be read */
} msp_small_file;

enum { MSP_SMALL_FILES = 32 }; /* at most, and as many descriptors */

/*
 * Open n files, read them, and close them: three calls of the kernel for each, as if they were read one by one, but one
 * kind after the other and, for descriptors that are neighbours, one call that closes them. That saves a seventh of the
 * time. Where the files are ours, they do not even tell that they were read: the first to read thousands would
 * otherwise have as many inodes written. What msp_map_open_in() says about short reads holds here too.
 */
void msp_file_read_small(msp_small_file *files, size_t n);

/*
 * Read a whole regular file of at most limit bytes into memory that msp_free() gives back; one more byte, 0, follows
 * it.
 */
MSP_CHECK msp_status msp_file_read(char **out, size_t *size, const char *path, size_t limit, msp_error *err);

/*
 * Give the calling thread a table of descriptors of its own, which holds 0 to 2 and the n in keep and no other: threads
 * that open thousands of files need not wait for each other then. Whatever else the process opens or closes from now on
 * is not seen here, and what is opened here is seen nowhere else; so this is for threads that end with their work and
 * call nobody's functions but this library's. False where it is not possible: the table is still the process's.
 */
bool msp_file_own_table(const int *keep, size_t n);

/*
 * A file that is written beside its final place and renamed into it by msp_file_commit().
 */
typedef struct msp_file {
    int fd; /* -1: none */
    char *path, *temp;
} msp_file;

#define MSP_FILE_NONE ((msp_file){-1, NULL, NULL})

/* Create "<path>.<pid>.<n>.tmp" with this mode; the name in path is cut in it when it is very long. */
MSP_CHECK msp_status msp_file_create(msp_file *out, const char *path, unsigned mode, msp_error *err);

/*
 * Say how many bytes will be written: a large file gets its blocks at once. Writing into them takes two thirds of the
 * time, because the file system need not count free blocks page by page, and a disk that is too full says so here.
 */
MSP_CHECK msp_status msp_file_reserve(msp_file *f, uint64_t size, msp_error *err);

/*
 * Give the file behind fd its blocks, up to size, and that size. The result is 0 or an errno. Signals wait meanwhile: a
 * profiler's timer would interrupt a large file again and again, and some file systems then begin anew.
 */
int msp_file_allocate(int fd, uint64_t size);

/* MSP_E_IO for a write to path that failed with errnum; a full disk comes with what to do about it. */
msp_status msp_file_cannot_write(const char *path, int errnum, msp_error *err);

/*
 * Write all parts one behind the other at this offset, -1: where fd stands; interrupted and short writes are continued.
 * The result is 0 or an errno. parts is used up.
 */
int msp_file_put(int fd, struct iovec *parts, int n, int64_t offset);

/* All parts, which are used up, or an error; the same for n bytes. */
MSP_CHECK msp_status msp_file_write_parts(msp_file *f, struct iovec *parts, int n, msp_error *err);
MSP_CHECK msp_status msp_file_write(msp_file *f, const void *p, size_t n, msp_error *err);

/* Overwrite n bytes at offset, which must have been written before; the place where the next write goes stays. */
MSP_CHECK msp_status msp_file_patch(msp_file *f, uint64_t offset, const void *p, size_t n, msp_error *err);

/* Close and rename into place, replacing what is there. f is empty afterwards, whatever happened. */
MSP_CHECK msp_status msp_file_commit(msp_file *f, msp_error *err);

/* A file with these n bytes, whole or not at all. Errors name the path. */
MSP_CHECK msp_status msp_file_save(const char *path, const void *p, size_t n, unsigned mode, msp_error *err);

/* Close and remove the temporary file. Accepts MSP_FILE_NONE and a zeroed f with fd -1. */
void msp_file_abandon(msp_file *f);

#endif
