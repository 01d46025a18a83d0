/*
 * bench_xlsx.c - rows per second of the xlsx writer, and its memory, on a table like a statistics comparison: 27
 * columns, of which 8 are text, 16 numbers, one a boolean and two short text.
 *
 *     bench_xlsx FILE ROWS [lxw]      with lxw: the same table through libxlsxwriter alone, in constant-memory mode
 *
 * Prints one line: seconds, rows per second, peak resident memory in MB. bench_xlsx.py sets it against openpyxl.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xlsxwriter.h>
#include "bench.h"
#include "msprobe/table.h"

enum { COLUMNS = 27, NUMBERS_FROM = 8, NUMBERS_TO = 24 };

/* Numbers with all their digits, as differences of tensors are. */
static double
next_number(void)
{
    static unsigned long long state = 88172645463325252u;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53 * 100;
}

static void
fill(msp_cell cells[COLUMNS], char name[64], long row)
{
    static const char *const texts[] = {"torch.float32", "torch.float32", "[16, 1024]", "[16, 1024]", "True", "True"};
    size_t len = (size_t)snprintf(name, 64, "Functional.linear.%ld.forward.input.0", row);

    cells[0] = cells[1] = msp_cell_text(name, len);
    for (int i = 2; i < NUMBERS_FROM; i++)
        cells[i] = msp_cell_text(texts[i - 2], strlen(texts[i - 2]));
    for (int i = NUMBERS_FROM; i < NUMBERS_TO; i++)
        cells[i] = msp_cell_float(next_number());
    cells[24] = msp_cell_bool(true);
    cells[25] = msp_cell_text("Warning", 7);
    cells[26] = msp_cell_text("", 0);
}

/* Not getrusage(): its maximum includes what the parent had before exec. */
static double
peak_mb(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kb = 0;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "VmHWM: %ld kB", &kb) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return (double)kb / 1024;
}

static int
write_ours(const char *path, long rows)
{
    msp_column columns[COLUMNS];
    msp_cell cells[COLUMNS];
    char name[64], titles[COLUMNS][16];
    msp_table *t;
    msp_error err;
    msp_status st;

    for (int i = 0; i < COLUMNS; i++) {
        snprintf(titles[i], sizeof(titles[i]), "Column %d", i);
        columns[i] = (msp_column){titles[i], 0};
    }
    st = msp_table_open(&t, path, MSP_TABLE_XLSX, columns, COLUMNS, NULL, &err);
    for (long r = 0; r < rows && st == MSP_OK; r++) {
        fill(cells, name, r);
        st = msp_table_row(t, cells, MSP_ROW_PLAIN, &err);
    }
    if (st == MSP_OK)
        st = msp_table_finish(t, &err);
    msp_table_close(t);
    if (st != MSP_OK)
        fprintf(stderr, "%s\n", err.message);
    return st != MSP_OK;
}

static int
write_lxw(const char *path, long rows)
{
    lxw_workbook_options opt = {.constant_memory = 1};
    lxw_workbook *book = workbook_new_opt(path, &opt);
    lxw_worksheet *sheet = workbook_add_worksheet(book, NULL);
    msp_cell cells[COLUMNS];
    char name[64];

    for (long r = 0; r < rows; r++) {
        fill(cells, name, r);
        for (int i = 0; i < COLUMNS; i++) {
            if (cells[i].kind == MSP_CELL_TEXT)
                worksheet_write_string(sheet, (lxw_row_t)r, (lxw_col_t)i, cells[i].as.text.p, NULL);
            else if (cells[i].kind == MSP_CELL_FLOAT)
                worksheet_write_number(sheet, (lxw_row_t)r, (lxw_col_t)i, cells[i].as.f, NULL);
            else
                worksheet_write_boolean(sheet, (lxw_row_t)r, (lxw_col_t)i, cells[i].as.b, NULL);
        }
    }
    return workbook_close(book) != LXW_NO_ERROR;
}

int
main(int argc, char **argv)
{
    double start = bench_now(), seconds;
    long rows;
    int failed;

    if (argc < 3) {
        fprintf(stderr, "usage: bench_xlsx FILE ROWS [lxw]\n");
        return 2;
    }
    rows = atol(argv[2]);
    failed = argc > 3 ? write_lxw(argv[1], rows) : write_ours(argv[1], rows);
    seconds = bench_now() - start;
    printf("%.3f s  %.0f rows/s  %.1f MB\n", seconds, (double)rows / seconds, peak_mb());
    return failed;
}
