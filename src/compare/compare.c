/* compare.c - nothing here yet. */
typedef int msp_compare_is_empty;
