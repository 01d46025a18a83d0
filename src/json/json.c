/* json.c - nothing here yet. */
typedef int msp_json_is_empty;
