/* name_map.h - data_mapping: a yaml file of "NPU row name: bench row name". */
#ifndef MSP_COMPARE_NAME_MAP_H
#define MSP_COMPARE_NAME_MAP_H

#include <stdatomic.h>
#include "compare/match/match.h"
#include "core/map.h"
#include "text/json.h"

/* Names for the NPU rows that are looked up under another one: data_mapping, and what other mappings become. */
typedef struct msp_name_map {
    msp_json_doc doc;
    char *text;
    msp_map names;       /* value: index of the member in doc */
    atomic_uchar *use;   /* of each name, by all pairs together */
    atomic_bool is_used; /* by a pair */
} msp_name_map;

/* MSP_E_NOT_FOUND, MSP_E_IO, MSP_E_FORMAT (no YAML), MSP_E_INVALID (not a flat map of names). */
MSP_CHECK msp_status msp_name_map_load(msp_name_map *out, const char *path, msp_error *err);
void msp_name_map_release(msp_name_map *m);

/* The msp_match_key of a msp_name_map: the mapped name, or the row's own. */
msp_str msp_name_map_key(const msp_rows *npu, const msp_row *row, msp_buf *scratch, void *ctx);

/* Note which lines found rows in a pair, from any thread; then warn of those that found none in any of them. */
void msp_name_map_note(msp_name_map *m, const msp_rows *npu, const msp_match *match);
void msp_name_map_warn(const msp_name_map *m, const msp_compare_options *opt);

#endif
