/*
 * replay.c - runs a fuzz target over files and folders named on the command line, without libFuzzer: how the corpora
 * become ordinary tests under every compiler and sanitizer.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int
run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data;
    long size;

    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0) {
        perror(path);
        return 1;
    }
    rewind(f);
    data = malloc((size_t)size + 1); /* exact size matters to ASan: hand over a copy of just that */
    if (data == NULL || fread(data, 1, (size_t)size, f) != (size_t)size) {
        perror(path);
        return 1;
    }
    fclose(f);
    data = realloc(data, size > 0 ? (size_t)size : 1);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 0;
}

int
main(int argc, char **argv)
{
    int files = 0, failed = 0;

    for (int i = 1; i < argc; i++) {
        struct dirent *e;
        DIR *d = opendir(argv[i]);

        if (d == NULL) {
            failed += run_file(argv[i]);
            files++;
            continue;
        }
        while ((e = readdir(d)) != NULL) {
            char path[4096];

            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
            failed += run_file(path);
            files++;
        }
        closedir(d);
    }
    printf("%d inputs replayed, %d could not be read\n", files, failed);
    return failed > 0 || files == 0;
}
