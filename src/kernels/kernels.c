/* kernels.c - nothing here yet. */
typedef int msp_kernels_is_empty;
