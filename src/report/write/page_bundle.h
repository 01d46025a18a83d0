/* page_bundle.h - the page's style and program: web/dist, turned into arrays when this is built. */
#ifndef MSP_REPORT_PAGE_BUNDLE_H
#define MSP_REPORT_PAGE_BUNDLE_H

#include <stddef.h>

extern const char msp_page_style[], msp_page_program[];
extern const size_t msp_page_style_size, msp_page_program_size;

#endif
