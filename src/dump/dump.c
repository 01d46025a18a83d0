/* dump.c - nothing here yet. */
typedef int msp_dump_is_empty;
