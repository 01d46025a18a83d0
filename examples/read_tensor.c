/*
 * read_tensor.c - what is in a tensor file: .pt, .npy or .safetensors, with one tensor or many.
 *
 *     read_tensor FILE
 */
#include <inttypes.h>
#include <stdio.h>
#include "msprobe/tensor.h"

enum { SHOWN = 6 }; /* elements per tensor */

static void
print_tensor(const char *name, const msp_tensor *t)
{
    char text[80];

    printf("%s%s%s [", name, name[0] != '\0' ? ": " : "", msp_dtype_torch_name(t->dtype));
    for (int32_t i = 0; i < t->ndim; i++)
        printf("%s%" PRId64, i > 0 ? ", " : "", t->shape[i]);
    printf("]%s:", t->requires_grad ? " requires_grad" : "");
    for (int64_t i = 0; i < t->numel && i < SHOWN; i++) {
        /* the view may be strided and is never aligned by promise: ask for the element's address */
        msp_dtype_format(text, t->dtype, msp_tensor_at(t, i));
        printf(" %s", text);
    }
    printf("%s\n", t->numel > SHOWN ? " ..." : "");
}

int
main(int argc, char **argv)
{
    msp_tensor_file *file;
    msp_error err;

    if (argc != 2) {
        fprintf(stderr, "usage: read_tensor FILE\n");
        return 2;
    }
    /* nothing is copied and no pickle is executed: the tensors are views of the mapped file */
    if (msp_tensor_file_open(&file, argv[1], &err) != MSP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (size_t i = 0; i < msp_tensor_file_count(file); i++)
        print_tensor(msp_tensor_file_name(file, i), msp_tensor_file_at(file, i));
    msp_tensor_file_close(file);
    return 0;
}
