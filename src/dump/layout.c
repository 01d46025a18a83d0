/*
 * layout.c - find the dumps below a path: [graph|pynative/] [step<N>/] [rank<N>|rank|proc<pid>/] dump.json, debug.json;
 * of the older tools: [<tag>_v<version>/] [step<N>/] [rank<N>/] <name>.pkl with a folder <name> of .npy files
 */
#include <sys/stat.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/path.h"
#include "core/vec.h"
#include "dump/dump_read.h"
#include "dump/legacy.h"

typedef struct walk {
    msp_dump_layout *out;
    size_t cap_places, cap_strays;
    const char *group, *step_name, *rank_name; /* of the folder that the walk is in */
    int64_t step, rank;
    msp_error *err;
} walk;

typedef msp_status visit(walk *w, const char *path, const char *name);

static msp_status
no_memory(walk *w)
{
    return msp_error_set(w->err, MSP_E_NOMEM, "out of memory");
}

msp_status
msp_dump_check_owner(const char *path, msp_error *err)
{
    struct stat st;

    if (stat(path, &st) == 0 && (st.st_mode & S_IWOTH) != 0 && st.st_uid != geteuid())
        return msp_error_set(err, MSP_E_INVALID,
                             "%s: everybody may write to it and somebody else owns it; it is not read (chmod o-w, or "
                             "copy it)",
                             path);
    return MSP_OK;
}

/* "<prefix><digits>": true and the number; with bare also "<prefix>" alone, as MSP_DUMP_NO_NUMBER. */
static bool
is_numbered(const char *name, const char *prefix, bool bare, int64_t *number)
{
    size_t n = strlen(prefix);
    unsigned long long v;

    if (strncmp(name, prefix, n) != 0)
        return false;
    *number = MSP_DUMP_NO_NUMBER;
    if (name[n] == '\0')
        return bare;
    if (!msp_str_to_u64(msp_str_of(name + n), &v) || v > INT64_MAX)
        return false;
    *number = (int64_t)v;
    return true;
}

static bool
is_rank(const char *name, int64_t *rank)
{
    if (is_numbered(name, "rank", true, rank))
        return true;
    if (!is_numbered(name, "proc", false, rank))
        return false;
    *rank = MSP_DUMP_NO_NUMBER; /* a process id says nothing about which rank it was */
    return true;
}

static bool
is_group(const char *name)
{
    return strcmp(name, "graph") == 0 || strcmp(name, "pynative") == 0;
}

static msp_status
add_place(walk *w, const char *path, msp_dump_kind kind)
{
    msp_dump_layout *l = w->out;
    msp_dump_place p =
        {msp_str_copy(msp_str_of(path)),         msp_str_copy(msp_str_of(w->group)),     w->step, w->rank,
         msp_str_copy(msp_str_of(w->step_name)), msp_str_copy(msp_str_of(w->rank_name)), kind,    NULL};

    if (!msp_vec_grow((void **)&l->places, &w->cap_places, l->count + 1, sizeof(p))) {
        msp_free(p.path);
        msp_free(p.group);
        msp_free(p.step_name);
        msp_free(p.rank_name);
        return no_memory(w);
    }
    l->places[l->count++] = p; /* the layout owns it from here on, complete or not */
    if (p.path == NULL || p.group == NULL || p.step_name == NULL || p.rank_name == NULL)
        return no_memory(w);
    return MSP_OK;
}

static msp_status
add_stray(walk *w, const char *path)
{
    msp_dump_layout *l = w->out;
    char *copy = msp_str_copy(msp_str_of(path));

    if (copy == NULL || !msp_vec_grow((void **)&l->strays, &w->cap_strays, l->nstrays + 1, sizeof(copy))) {
        msp_free(copy);
        return no_memory(w);
    }
    l->strays[l->nstrays++] = copy;
    return MSP_OK;
}

static bool
has_file(const char *dir, const char *name)
{
    char *path = msp_path_join(dir, name);
    bool there = path != NULL && msp_path_kind_of(path) == MSP_PATH_FILE;

    msp_free(path);
    return there;
}

/* ---- files of the older tools ------------------------------------------------------------------------------------ */

/* "<name>.pkl" or a name without ending, which their scripts may choose; the content decides. */
static bool
is_legacy_file(const char *path, const char *name)
{
    bool named = msp_str_ends(msp_str_of(name), MSP_STR(".pkl")) || strchr(name, '.') == NULL;

    return named && msp_path_kind_of(path) == MSP_PATH_FILE && msp_legacy_is(path);
}

/* The folder of .npy files that belongs to a .pkl in the same list. */
static bool
is_data_dir(const msp_dir_list *names, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < names->count; i++)
        if (strncmp(names->names[i], name, n) == 0 && strcmp(names->names[i] + n, ".pkl") == 0)
            return true;
    return false;
}

/* "ptdbg_dump_v2.3": the folder above the ranks. */
static bool
is_tag(const char *name)
{
    const char *at = NULL;

    for (const char *p = name; (p = strstr(p, "_v")) != NULL; p++)
        at = p;
    return at != NULL && at[2] >= '0' && at[2] <= '9' && at[2 + strspn(at + 2, "0123456789.")] == '\0';
}

/* The only tag in a folder, or NULL; several are for the user to choose from. */
static msp_status
find_tag(walk *w, const char *dir, const msp_dir_list *names, const char **tag)
{
    *tag = NULL;
    for (size_t i = 0; w->step_name[0] == '\0' && w->group[0] == '\0' && i < names->count; i++) {
        if (!is_tag(names->names[i]))
            continue;
        if (*tag != NULL)
            return msp_error_set(w->err, MSP_E_INVALID,
                                 "%s holds several dumps, %s and %s among them; give one of them", dir, *tag,
                                 names->names[i]);
        *tag = names->names[i];
    }
    return MSP_OK;
}

/* Every .pkl in a rank's folder. */
static msp_status
add_legacy_files(walk *w, const char *dir)
{
    msp_dir_list names;
    msp_status st = msp_dir_list_read(&names, dir, w->err);

    if (st != MSP_OK)
        return st;
    for (size_t i = 0; st == MSP_OK && i < names.count; i++) {
        char *path = msp_path_join(dir, names.names[i]);

        if (path == NULL)
            st = no_memory(w);
        else if (is_legacy_file(path, names.names[i]))
            st = add_place(w, path, MSP_DUMP_LEGACY);
        msp_free(path);
    }
    msp_dir_list_release(&names);
    return st;
}

/* The files of a folder that holds them itself. */
static msp_status
add_files(walk *w, const char *dir)
{
    static const msp_dump_kind kinds[] = {MSP_DUMP_API, MSP_DUMP_DEBUG};
    size_t before = w->out->count;
    msp_status st = msp_dump_check_owner(dir, w->err);

    for (size_t i = 0; st == MSP_OK && i < 2; i++)
        if (has_file(dir, msp_dump_kind_file(kinds[i]))) {
            char *path = msp_path_join(dir, msp_dump_kind_file(kinds[i]));

            st = path == NULL ? no_memory(w) : add_place(w, path, kinds[i]);
            msp_free(path);
        }
    if (st == MSP_OK && w->out->count == before)
        st = add_legacy_files(w, dir);
    if (st != MSP_OK || w->out->count > before)
        return st;
    if (w->rank == MSP_DUMP_NO_NUMBER)
        return add_stray(w, dir);
    return msp_error_set(w->err, MSP_E_NOT_FOUND, "%s: holds no dump.json, no debug.json and no .pkl of ptdbg_ascend",
                         dir);
}

/* Walk through a folder; one that cannot be is a place of its own, so that it is named and the others are used. */
static msp_status
enter_folder(walk *w, const char *dir, msp_status (*inside)(walk *w, const char *dir))
{
    msp_error why, *err = w->err;
    msp_status st;

    w->err = &why;
    st = inside(w, dir);
    w->err = err;
    if (st == MSP_OK)
        return MSP_OK;
    if (st == MSP_E_NOMEM || add_place(w, dir, MSP_DUMP_API) != MSP_OK)
        return no_memory(w);
    w->out->places[w->out->count - 1].error = msp_str_copy(msp_str_of(why.message));
    return w->out->places[w->out->count - 1].error == NULL ? no_memory(w) : MSP_OK;
}

static msp_status
visit_rank(walk *w, const char *dir, const char *name)
{
    msp_status st;

    w->rank_name = name;
    st = enter_folder(w, dir, add_files);
    w->rank_name = "";
    return st;
}

static msp_status visit_level(walk *w, const char *dir);

static msp_status
visit_step(walk *w, const char *dir, const char *name)
{
    msp_status st;

    w->step_name = name;
    st = enter_folder(w, dir, visit_level);
    w->step_name = "";
    w->step = MSP_DUMP_NO_NUMBER;
    return st;
}

static msp_status
visit_group(walk *w, const char *dir, const char *name)
{
    msp_status st;

    w->group = name;
    st = enter_folder(w, dir, visit_level);
    w->group = "";
    return st;
}

/* What a folder's name makes it, as seen from where the walk stands; NULL: nothing of ours. */
static visit *
visitor_of(walk *w, const char *name)
{
    int64_t number;

    if (is_rank(name, &number)) {
        w->rank = number;
        return visit_rank;
    }
    if (w->step_name[0] == '\0' && is_numbered(name, "step", false, &number)) {
        w->step = number;
        return visit_step;
    }
    if (w->step_name[0] == '\0' && w->group[0] == '\0' && is_group(name))
        return visit_group;
    return NULL;
}

/* A folder of ranks, of steps, of the two groups, or of the files themselves. What else is beside them is a stray. */
static msp_status
visit_level(walk *w, const char *dir)
{
    msp_dir_list names;
    const char *tag;
    msp_status st;

    if (has_file(dir, "dump.json") || has_file(dir, "debug.json"))
        return add_files(w, dir);
    st = msp_dump_check_owner(dir, w->err);
    if (st == MSP_OK)
        st = msp_dir_list_read(&names, dir, w->err);
    if (st != MSP_OK)
        return st;
    st = find_tag(w, dir, &names, &tag);
    for (size_t i = 0; st == MSP_OK && i < names.count; i++) {
        char *path = msp_path_join(dir, names.names[i]);
        msp_path_kind kind = path == NULL ? MSP_PATH_NONE : msp_path_kind_of(path);
        visit *v = kind == MSP_PATH_DIR ? visitor_of(w, names.names[i]) : NULL;

        if (path == NULL)
            st = no_memory(w);
        else if (v != NULL)
            st = v(w, path, names.names[i]);
        else if (names.names[i] == tag && kind == MSP_PATH_DIR)
            st = visit_level(w, path);
        else if (kind == MSP_PATH_FILE && is_legacy_file(path, names.names[i]))
            st = add_place(w, path, MSP_DUMP_LEGACY);
        else if (kind != MSP_PATH_DIR || !is_data_dir(&names, names.names[i]))
            st = add_stray(w, path);
        w->rank = MSP_DUMP_NO_NUMBER;
        msp_free(path);
    }
    msp_dir_list_release(&names);
    return st;
}

static msp_status
nothing_there(walk *w, const char *dir)
{
    msp_buf seen = {0};
    msp_dir_list names;

    if (msp_dir_list_read(&names, dir, NULL) == MSP_OK) {
        for (size_t i = 0; i < names.count && i < 5; i++)
            msp_buf_printf(&seen, "%s%s", i > 0 ? ", " : "", names.names[i]);
        if (names.count > 5)
            msp_buf_printf(&seen, " and %zu more", names.count - 5);
        msp_dir_list_release(&names);
    }
    if (msp_str_eq(msp_path_base(dir), MSP_STR("dump_tensor_data")))
        msp_error_set(w->err, MSP_E_NOT_FOUND, "%s: no dump but the tensor files of one; give the folder above it",
                      dir);
    else
        msp_error_set(w->err, MSP_E_NOT_FOUND,
                      "%s: no dump here: expected dump.json, debug.json or a .pkl of ptdbg_ascend, or folders rank<N> "
                      "or step<N> with them; it holds %s",
                      dir, seen.len > 0 ? seen.p : "nothing");
    msp_buf_release(&seen);
    return MSP_E_NOT_FOUND;
}

/* What there is for a file that is no dump. */
static const char *
hint_of(msp_str name)
{
    static const struct {
        const char *end, *hint;
    } hints[] = {{".pt", "; msprobe diff A B compares tensor files"},
                 {".npy", "; msprobe diff A B compares tensor files"},
                 {".safetensors", "; msprobe diff A B compares tensor files"},
                 {".xlsx", "; msprobe report makes the page of a table"},
                 {".csv", "; msprobe report makes the page of a table"},
                 {"stack.json", "; dump.json stands beside it"},
                 {"construct.json", "; dump.json stands beside it"}};

    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (msp_str_ends(name, msp_str_of(hints[i].end)))
            return hints[i].hint;
    return "";
}

static msp_status
find_file(walk *w, const char *path)
{
    msp_str name = msp_path_base(path);

    if (msp_str_ends(name, MSP_STR("debug.json")))
        return add_place(w, path, MSP_DUMP_DEBUG);
    if (msp_str_ends(name, MSP_STR("dump.json")))
        return add_place(w, path, MSP_DUMP_API);
    if (msp_legacy_is(path))
        return add_place(w, path, MSP_DUMP_LEGACY);
    if (msp_str_ends(name, MSP_STR(".pkl")))
        return msp_error_set(w->err, MSP_E_FORMAT,
                             "%s: it has no line of ptdbg_ascend or torch_npu.hooks: nothing was recorded into it, or "
                             "another program has written it",
                             path);
    return msp_error_set(w->err, MSP_E_INVALID,
                         "%s: expected a file named dump.json or debug.json, a .pkl of ptdbg_ascend, or a folder%s",
                         path, hint_of(name));
}

msp_status
msp_dump_find(msp_dump_layout *out, const char *path, msp_error *err)
{
    walk w = {out, 0, 0, "", "", "", MSP_DUMP_NO_NUMBER, MSP_DUMP_NO_NUMBER, err};
    msp_status st;

    *out = (msp_dump_layout){0};
    switch (msp_path_kind_of(path)) {
    case MSP_PATH_FILE:
        st = msp_dump_check_owner(path, err);
        if (st == MSP_OK)
            st = find_file(&w, path);
        break;
    case MSP_PATH_DIR:
        st = visit_level(&w, path);
        if (st == MSP_OK && out->count == 0)
            st = nothing_there(&w, path);
        break;
    case MSP_PATH_NONE:
        st = msp_error_set(err, MSP_E_NOT_FOUND, "%s: no such file or directory, or no permission to reach it", path);
        break;
    default:
        st = msp_error_set(err, MSP_E_INVALID, "%s: neither a file nor a directory", path);
    }
    if (st != MSP_OK)
        msp_dump_layout_release(out);
    return st;
}

void
msp_dump_layout_release(msp_dump_layout *l)
{
    for (size_t i = 0; i < l->count; i++) {
        msp_free(l->places[i].path);
        msp_free(l->places[i].group);
        msp_free(l->places[i].step_name);
        msp_free(l->places[i].rank_name);
        msp_free(l->places[i].error);
    }
    for (size_t i = 0; i < l->nstrays; i++)
        msp_free(l->strays[i]);
    msp_free(l->places);
    msp_free(l->strays);
    *l = (msp_dump_layout){0};
}
