/* page_part.h - what page.c needs of a part besides page.h. */
#ifndef MSP_REPORT_PAGE_PART_H
#define MSP_REPORT_PAGE_PART_H

#include "report/write/page.h"

/* The file with the part's blocks, open for reading. */
int msp_page_part_fd(const msp_page_part *p);

#endif
