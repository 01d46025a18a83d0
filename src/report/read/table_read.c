/* table_read.c - see table_read.h. */
#include "report/read/table_read.h"

#include <string.h>
#include "core/file.h"

static bool
is_workbook(const msp_mapping *map)
{
    return map->size >= 2 && memcmp(map->addr, "PK", 2) == 0;
}

msp_status
msp_table_read_sheet(const char *path, const char *name, const msp_table_sink *sink, msp_error *err)
{
    msp_mapping map;
    msp_status st = msp_map_open(&map, path, err);

    if (st != MSP_OK)
        return st;
    if (is_workbook(&map))
        st = msp_xlsx_read_sheet(map.addr, map.size, name, sink, err);
    if (st != MSP_OK)
        msp_error_prefix(err, st, "%s: ", path);
    st = msp_map_blame(&map, AT_FDCWD, path, st, err);
    msp_map_close(&map);
    return st;
}

msp_status
msp_table_read(const char *path, const msp_table_sink *sink, msp_error *err)
{
    msp_mapping map;
    msp_status st = msp_map_open(&map, path, err);

    if (st != MSP_OK)
        return st;
    if (is_workbook(&map))
        st = msp_xlsx_read(map.addr, map.size, sink, err);
    else
        st = msp_csv_read(map.addr, map.size, sink, err);
    if (st != MSP_OK)
        msp_error_prefix(err, st, "%s: ", path);
    st = msp_map_blame(&map, AT_FDCWD, path, st, err);
    msp_map_close(&map);
    return st;
}
