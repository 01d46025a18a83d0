/* page_part.h - what page.c needs of a part besides page.h. */
#ifndef MSP_REPORT_PAGE_PART_H
#define MSP_REPORT_PAGE_PART_H

#include "report/write/page.h"

/* The file with the blocks of a part that is finished. */
const char *msp_page_part_path(const msp_page_part *p);

#endif
