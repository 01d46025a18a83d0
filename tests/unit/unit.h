/* unit.h - what every unit test includes: cmocka in the order it wants, and a scratch directory. */
#ifndef MSP_TESTS_UNIT_H
#define MSP_TESTS_UNIT_H

#include <errno.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define TEST(name) cmocka_unit_test(name)

/* A fresh directory under $TMPDIR or /tmp, made once per program and removed when it ends. */
static inline const char *
scratch_dir(void)
{
    static char dir[256];

    if (dir[0] == '\0') {
        const char *tmp = getenv("TMPDIR");

        snprintf(dir, sizeof(dir), "%s/msprobe-unit.XXXXXX", tmp != NULL ? tmp : "/tmp");
        if (mkdtemp(dir) == NULL)
            abort();
    }
    return dir;
}

/* scratch_dir()/name in one of eight rotating buffers. */
static inline const char *
scratch_path(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *p = paths[next++ % 8];

    snprintf(p, sizeof(paths[0]), "%s/%s", scratch_dir(), name);
    return p;
}

/* Write a file in the scratch directory, make the folders that its name has, and return its path. */
static inline const char *
write_file(const char *name, const void *bytes, size_t n)
{
    const char *path = scratch_path(name), *slash = path + strlen(scratch_dir());
    char folder[512];
    FILE *f;

    while ((slash = strchr(slash + 1, '/')) != NULL) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        if (mkdir(folder, 0750) != 0 && errno != EEXIST)
            abort();
    }
    f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        abort();
    return path;
}

/* write_file() of a text. */
static inline const char *
write_text(const char *name, const char *text)
{
    return write_file(name, text, strlen(text));
}

/*
 * Set all of this process's locale to one of another country, for example "de_DE", made from the C library's sources
 * in the scratch directory. setlocale(LC_ALL, "C") ends that. NULL where those are missing.
 */
static inline const char *
set_foreign_locale(const char *name)
{
    char command[512];

    snprintf(command, sizeof(command), "localedef --no-archive -i %s -f UTF-8 '%s/%s.UTF-8' >/dev/null 2>&1", name,
             scratch_dir(), name);
    (void)!system(command);
    setenv("LOCPATH", scratch_dir(), 1);
    snprintf(command, sizeof(command), "%s.UTF-8", name);
    if (setlocale(LC_ALL, command) == NULL) {
        fprintf(stderr, "%s cannot be made: is the package locales there? (tools/setup test)\n", command);
        return NULL;
    }
    return setlocale(LC_ALL, NULL);
}

/* Group teardown: remove the scratch directory. */
static inline int
remove_scratch(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", scratch_dir());
    return system(command);
}

#endif
