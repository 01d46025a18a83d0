/* io.c - nothing here yet. */
typedef int msp_io_is_empty;
