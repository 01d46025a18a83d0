/*
 * xml.h - XML as it stands in office documents, one event at a time, from a source that need not be in memory.
 *
 * Strict about what matters: tags must match, there is one root, references must exist, control characters are refused.
 * Not a general processor: a document type declaration is refused (that is where entity bombs live), encodings other
 * than UTF-8 too, namespace prefixes are cut off and not looked up. One piece of markup may have 64 KiB, elements may
 * be nested 64 deep; that and the buffer for it is all the memory there is, whatever the size of the document.
 */
#ifndef MSP_REPORT_XML_H
#define MSP_REPORT_XML_H

#include <stdint.h>
#include "core/str.h"

enum { MSP_XML_MAX_MARKUP = 64 * 1024, MSP_XML_MAX_DEPTH = 64 };

/* Put up to room bytes at p and their number in *got; 0 bytes are the end. */
typedef msp_status msp_xml_source(char *p, size_t room, size_t *got, void *payload, msp_error *err);

typedef enum msp_xml_event {
    MSP_XML_START, /* name, attributes */
    MSP_XML_END,   /* name; follows the start at once for an empty element */
    MSP_XML_TEXT,  /* text: decoded, and perhaps only a piece of it; white space between elements too */
    MSP_XML_DONE   /* the document has ended as it should */
} msp_xml_event;

typedef struct msp_xml {
    msp_str name; /* of the element, without its prefix; valid until the next event */
    msp_str text; /* valid until the next event */

    msp_xml_source *source;
    void *payload;
    char *buffer;
    size_t at, len;    /* unread part of it */
    uint64_t consumed; /* bytes of the document before buffer[0] */
    bool at_end;       /* the source has nothing more */
    bool started, ended, empty_element;
    msp_str attributes; /* of the start tag, as they stand */
    msp_buf decoded;
    msp_buf open; /* names of the elements that are open, one after the other */
    size_t depth, name_at[MSP_XML_MAX_DEPTH];
} msp_xml;

MSP_CHECK msp_status msp_xml_open(msp_xml *x, msp_xml_source *source, void *payload, msp_error *err);

/* The next event. After an error only msp_xml_close() may follow. Errors say at which byte of the document. */
MSP_CHECK msp_status msp_xml_next(msp_xml *x, msp_xml_event *event, msp_error *err);

/*
 * After MSP_XML_START: true when the element has an attribute with this local name, and in *out its value, decoded;
 * valid until the next call of any function here.
 */
bool msp_xml_attribute(msp_xml *x, const char *name, msp_str *out);

/* Accepts a zeroed x and leaves it so. */
void msp_xml_close(msp_xml *x);

#endif
