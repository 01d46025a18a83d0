/* table_read.c - see table_read.h. */
#include "report/read/table_read.h"

#include <string.h>
#include "core/file.h"

msp_status
msp_table_read(const char *path, const msp_table_sink *sink, msp_error *err)
{
    msp_mapping map;
    msp_status st = msp_map_open(&map, path, err);

    if (st != MSP_OK)
        return st;
    if (map.size >= 2 && memcmp(map.addr, "PK", 2) == 0)
        st = msp_xlsx_read(map.addr, map.size, sink, err);
    else
        st = msp_csv_read(map.addr, map.size, sink, err);
    if (st != MSP_OK)
        msp_error_prefix(err, st, "%s: ", path);
    st = msp_map_blame(&map, AT_FDCWD, path, st, err);
    msp_map_close(&map);
    return st;
}
