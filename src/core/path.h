/* path.h - file names as text, and directories. Every path the file system accepts is accepted here. */
#ifndef MSP_CORE_PATH_H
#define MSP_CORE_PATH_H

#include <stdbool.h>
#include "core/str.h"
#include "msprobe/error.h"

typedef enum msp_path_kind { MSP_PATH_NONE = 0, MSP_PATH_FILE, MSP_PATH_DIR, MSP_PATH_OTHER } msp_path_kind;

/* What stands at path, symbolic links followed. */
msp_path_kind msp_path_kind_of(const char *path);

/* The last component, without trailing slashes: "b" for "/a/b/". */
msp_str msp_path_base(const char *path);

/* Everything before the last component: "/a" for "/a/b", "." for "b". */
msp_str msp_path_dir(const char *path);

/* dir + "/" + name in memory that msp_free() gives back, or dir alone when name is empty; NULL when there is none. */
char *msp_path_join(const char *dir, const char *name);

/* "<folder of path>/<name>" in memory that msp_free() gives back; NULL when there is none. */
char *msp_path_beside(const char *path, const char *name);

/* Create the directory and its parents with mode 0750; one that exists is fine. */
MSP_CHECK msp_status msp_path_make_dirs(const char *path, msp_error *err);

typedef struct msp_dir_list {
    char **names; /* sorted: text by bytes, but runs of digits by number, so rank2 stands before rank10 */
    size_t count;
} msp_dir_list;

/* The names in a directory, "." and ".." left out. */
MSP_CHECK msp_status msp_dir_list_read(msp_dir_list *out, const char *path, msp_error *err);
void msp_dir_list_release(msp_dir_list *l);

/* The order that msp_dir_list uses. */
int msp_str_cmp_natural(msp_str a, msp_str b);

#endif
