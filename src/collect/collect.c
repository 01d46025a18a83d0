/* collect.c - nothing here yet. */
typedef int msp_collect_is_empty;
