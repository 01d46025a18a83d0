/* dtype.c - nothing here yet. */
typedef int msp_dtype_is_empty;
