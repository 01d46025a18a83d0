/* torch_pickle.c - see torch_pickle.h. */
#include "io/torch_pickle.h"

#include "core/alloc.h"

/* What an OBJECT is. */
enum { TAG_CALLABLE = 1, TAG_DTYPE, TAG_STORAGE_CLASS, TAG_STORAGE, TAG_TENSOR };

/* One persistent id: a typed window on a blob. */
typedef struct storage {
    msp_torch_blob *blob;
    msp_dtype dtype; /* MSP_DTYPE_NONE: untyped, numel counts bytes */
    uint64_t offset; /* in bytes; legacy files have storages that are parts of others */
    uint64_t numel;
} storage;

typedef msp_pickle_value value;
typedef msp_status action(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err);

/*
 * An expanded tensor has more elements than its storage. This much more is honest; beyond it a file of a hundred bytes
 * would keep whoever walks its elements busy for years.
 */
static const uint64_t EXPAND_FACTOR = 65536, EXPAND_CONSTANT = (uint64_t)1 << 32;

enum { METADATA_MAX = 64 }; /* torch's has two entries; see MSP_TORCH_KEY_MAX */

enum { FEW_BLOBS = 8 }; /* are looked through one after the other */

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static value
make_object(int tag, void *p)
{
    return (value){.kind = MSP_PICKLE_OBJECT, .tag = (uint8_t)tag, .as.object = p};
}

static bool
is_object(value v, int tag)
{
    return v.kind == MSP_PICKLE_OBJECT && v.tag == tag;
}

msp_torch_tensor *
msp_torch_tensor_of(msp_pickle_value v)
{
    return is_object(v, TAG_TENSOR) ? v.as.object : NULL;
}

static msp_status
wrong_arguments(msp_error *err, const char *what)
{
    return msp_error_set(err, MSP_E_FORMAT, "%s", what);
}

/* Sizes or strides: a tuple of integers that are not negative. */
static msp_status
read_dims(const int64_t **out, value v, msp_budget *b, msp_error *err)
{
    int64_t *dims;
    msp_status st;
    void *p;

    *out = NULL;
    if (v.kind != MSP_PICKLE_TUPLE)
        return wrong_arguments(err, "the sizes or strides of a tensor are no tuple");
    if (v.len > MSP_MAX_NDIM)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "a tensor of %u dimensions; %d are possible", v.len, MSP_MAX_NDIM);
    st = msp_budget_alloc(&p, b, v.len, sizeof(*dims), err);
    if (st != MSP_OK)
        return st;
    dims = p;
    for (uint32_t i = 0; i < v.len; i++) {
        if (v.as.items[i].kind != MSP_PICKLE_INT || v.as.items[i].as.integer < 0)
            return wrong_arguments(err, "a size or stride of a tensor is no number, or is negative");
        dims[i] = v.as.items[i].as.integer;
    }
    *out = dims;
    return MSP_OK;
}

/* The number of elements, and the number of storage elements from the first to the last of them, both of which fit. */
static bool
measure_extent(uint64_t *numel, uint64_t *reach, const msp_torch_tensor *t)
{
    *numel = *reach = 1;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0) {
            *numel = *reach = 0;
            return true;
        }
    }
    for (int32_t i = 0; i < t->ndim; i++) {
        uint64_t size = (uint64_t)t->shape[i], step;

        if (__builtin_mul_overflow(size - 1, (uint64_t)t->strides[i], &step) ||
            __builtin_add_overflow(*reach, step, reach) || __builtin_mul_overflow(*numel, size, numel))
            return false;
    }
    return *numel <= INT64_MAX / 16; /* 16: the largest element */
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* Bytes that a machine of the other byte order would turn round together. */
static unsigned
number_width(msp_dtype t)
{
    size_t size = msp_dtype_size(t);

    return (unsigned)(msp_dtype_class_of(t) == MSP_CLASS_COMPLEX ? size / 2 : size);
}

msp_status
msp_torch_place(msp_torch_tensor *t, uint64_t offset, uint64_t have, msp_error *err)
{
    unsigned width = number_width(t->dtype);
    uint64_t numel, reach;

    if (!measure_extent(&numel, &reach, t))
        return wrong_arguments(err, "the extent of a tensor does not fit 63 bits");
    if (numel > 0 && (offset > have || reach > have - offset))
        return msp_error_set(err, MSP_E_FORMAT,
                             "a tensor reaches from element %llu over %llu elements of storage '%.*s', which has %llu",
                             (unsigned long long)offset, (unsigned long long)reach, (int)t->blob->key.len,
                             t->blob->key.p, (unsigned long long)have);
    if (numel > EXPAND_CONSTANT && (numel - EXPAND_CONSTANT) / EXPAND_FACTOR > have)
        return msp_error_set(err, MSP_E_LIMIT, "a tensor of %llu elements over a storage of %llu",
                             (unsigned long long)numel, (unsigned long long)have);
    t->numel = (int64_t)numel;
    t->offset = numel > 0 ? offset * msp_dtype_size(t->dtype) : 0;
    if (t->blob->swap_width == 0)
        t->blob->swap_width = width;
    else if (t->blob->swap_width != width)
        t->blob->swap_width = UINT32_MAX; /* tensors that disagree: cannot be turned round */
    return MSP_OK;
}

static msp_status
make_tensor(value *out, const storage *s, msp_dtype dtype, const value *args, msp_torch_model *m, msp_error *err)
{
    uint64_t have = s->dtype == MSP_DTYPE_NONE ? s->numel / msp_dtype_size(dtype) : s->numel;
    msp_torch_tensor *t;
    msp_status st;
    void *p;

    if (args[1].kind != MSP_PICKLE_INT || args[1].as.integer < 0)
        return wrong_arguments(err, "the offset of a tensor is no number, or is negative");
    st = msp_budget_alloc(&p, m->budget, 1, sizeof(*t), err);
    if (st != MSP_OK)
        return st;
    t = p;
    st = read_dims(&t->shape, args[2], m->budget, err);
    if (st == MSP_OK)
        st = read_dims(&t->strides, args[3], m->budget, err);
    if (st != MSP_OK)
        return st;
    if (args[2].len != args[3].len)
        return msp_error_set(err, MSP_E_FORMAT, "a tensor of %u sizes and %u strides", args[2].len, args[3].len);
    t->blob = s->blob;
    t->dtype = dtype;
    t->ndim = (int32_t)args[2].len;
    st = msp_torch_place(t, (uint64_t)args[1].as.integer, have, err);
    if (st == MSP_OK && t->numel > 0)
        t->offset += s->offset;
    *out = make_object(TAG_TENSOR, t);
    return st;
}

/* {"conj": True} and {"neg": True} mean that the bytes are not the values. */
static msp_status
check_metadata(value v, msp_error *err)
{
    const msp_pickle_sequence *s = v.kind == MSP_PICKLE_DICT ? v.as.sequence : NULL;

    if (s != NULL && s->count > METADATA_MAX)
        return msp_error_set(err, MSP_E_LIMIT, "a tensor with %zu values of metadata", s->count);
    for (size_t i = 0; s != NULL && i + 1 < s->count; i += 2) {
        msp_str key = msp_pickle_text(s->items[i]);

        if ((msp_str_eq(key, MSP_STR("conj")) || msp_str_eq(key, MSP_STR("neg"))) &&
            s->items[i + 1].kind == MSP_PICKLE_BOOL && s->items[i + 1].as.boolean)
            return msp_error_set(err, MSP_E_UNSUPPORTED,
                                 "a tensor is stored before its %.*s is applied: save it after .resolve_%.*s()",
                                 (int)key.len, key.p, (int)key.len, key.p);
    }
    return MSP_OK;
}

static void
set_requires_grad(value tensor, value flag)
{
    msp_torch_tensor_of(tensor)->requires_grad = flag.kind == MSP_PICKLE_BOOL && flag.as.boolean;
}

/* (storage, offset, size, stride): what files had before torch 0.4, and what the others begin with. */
static msp_status
rebuild_v1(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err)
{
    const storage *s = n >= 4 && is_object(args[0], TAG_STORAGE) ? args[0].as.object : NULL;

    if (s == NULL || s->dtype == MSP_DTYPE_NONE)
        return wrong_arguments(err, "a tensor is rebuilt without a typed storage");
    return make_tensor(out, s, s->dtype, args, m, err);
}

/* (storage, offset, size, stride, requires_grad, hooks[, metadata]) */
static msp_status
rebuild_v2(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err)
{
    msp_status st = n < 6 ? wrong_arguments(err, "a tensor is rebuilt with too few arguments") : MSP_OK;

    if (st == MSP_OK && n > 6)
        st = check_metadata(args[6], err);
    if (st == MSP_OK)
        st = rebuild_v1(out, args, n, m, err);
    if (st == MSP_OK)
        set_requires_grad(*out, args[4]);
    return st;
}

/* (untyped storage, offset, size, stride, requires_grad, hooks, dtype[, metadata]) */
static msp_status
rebuild_v3(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err)
{
    msp_status st = MSP_OK;

    if (n < 7 || !is_object(args[0], TAG_STORAGE) || !is_object(args[6], TAG_DTYPE))
        return wrong_arguments(err, "a tensor is rebuilt without a storage and a dtype");
    if (n > 7)
        st = check_metadata(args[7], err);
    if (st == MSP_OK) {
        storage *s = args[0].as.object, bytes = *s;

        if (s->dtype != MSP_DTYPE_NONE) { /* a typed one is as good: count its bytes */
            bytes.numel *= msp_dtype_size(s->dtype);
            bytes.dtype = MSP_DTYPE_NONE;
        }
        st = make_tensor(out, &bytes, (msp_dtype)args[6].len, args, m, err);
    }
    if (st == MSP_OK)
        set_requires_grad(*out, args[4]);
    return st;
}

/* (data, requires_grad, hooks[, state]); the tensor may also be used as itself, so the parameter is a copy. */
static msp_status
rebuild_parameter(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err)
{
    msp_torch_tensor *t = n >= 2 ? msp_torch_tensor_of(args[0]) : NULL;
    msp_status st;
    void *p;

    if (t == NULL)
        return wrong_arguments(err, "a parameter is rebuilt without a tensor");
    st = msp_budget_alloc(&p, m->budget, 1, sizeof(*t), err);
    if (st != MSP_OK)
        return st;
    *(msp_torch_tensor *)p = *t;
    *out = make_object(TAG_TENSOR, p);
    set_requires_grad(*out, args[1]);
    return MSP_OK;
}

/* (tensor, dtype, device, requires_grad): devices whose tensors have no storage save a copy on the host. */
static msp_status
rebuild_device(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err)
{
    const value parameter[] = {n > 0 ? args[0] : (value){0}, n > 3 ? args[3] : (value){0}};

    if (n < 4 || msp_torch_tensor_of(args[0]) == NULL || !is_object(args[1], TAG_DTYPE))
        return wrong_arguments(err, "a device tensor is rebuilt without a tensor and a dtype");
    if (msp_torch_tensor_of(args[0])->dtype != (msp_dtype)args[1].len)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "a device tensor is stored in another type than its own");
    return rebuild_parameter(out, parameter, 2, m, err);
}

static action *callable_action(value v);

/* (function, class, args, state): tensors with attributes, and parameters of newer torch. */
static msp_status
rebuild_from_type(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err)
{
    action *f = n >= 3 ? callable_action(args[0]) : NULL;

    /* only functions that cannot lead back here: the depth of calls must not be the file's to choose */
    if (f != rebuild_v1 && f != rebuild_v2 && f != rebuild_v3 && f != rebuild_parameter && f != rebuild_device)
        return wrong_arguments(err, "a tensor subclass is rebuilt by something that rebuilds no tensor");
    if (args[2].kind != MSP_PICKLE_TUPLE)
        return wrong_arguments(err, "a tensor subclass is rebuilt without arguments");
    return f(out, args[2].as.items, args[2].len, m, err);
}

/* ---- containers and the rest ------------------------------------------------------------------------------------ */

/* OrderedDict(), OrderedDict([[key, value], ...]), defaultdict(factory), dict(). */
static msp_status
make_dict(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err)
{
    msp_status st = msp_pickle_new_sequence(out, MSP_PICKLE_DICT, m->budget, err);
    const msp_pickle_sequence *s = n > 0 && args[0].kind == MSP_PICKLE_LIST ? args[0].as.sequence : NULL;

    for (size_t i = 0; st == MSP_OK && s != NULL && i < s->count; i++) {
        value pair = s->items[i];
        const value *two = pair.kind == MSP_PICKLE_TUPLE && pair.len == 2                 ? pair.as.items
                           : pair.kind == MSP_PICKLE_LIST && pair.as.sequence->count == 2 ? pair.as.sequence->items
                                                                                          : NULL;

        if (two == NULL)
            return wrong_arguments(err, "a dict is made of something that is no pair");
        st = msp_pickle_append(out->as.sequence, two, 2, m->budget, err);
    }
    return st;
}

/* torch.Size((2, 3)) */
static msp_status
make_size(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err)
{
    (void)m;
    if (n != 1 || args[0].kind != MSP_PICKLE_TUPLE)
        return wrong_arguments(err, "a torch.Size is made of something that is no tuple");
    *out = args[0];
    return MSP_OK;
}

static msp_status
make_opaque(value *out, const value *args, size_t n, msp_torch_model *m, msp_error *err)
{
    (void)args, (void)n, (void)m, (void)err;
    *out = (value){.kind = MSP_PICKLE_OPAQUE};
    return MSP_OK;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

/* MSP_STR without the cast, which a static table may not have. */
#define TEXT(literal)                \
    {                                \
        literal, sizeof(literal) - 1 \
    }

/* A name has either an action or, when it is known but not read, a reason. The most frequent stand first. */
static const struct known {
    msp_str module, name;
    action *run;
    const char *reason;
} known[] = {
    {TEXT("torch._utils"), TEXT("_rebuild_tensor_v2"), rebuild_v2, NULL},
    {TEXT("collections"), TEXT("OrderedDict"), make_dict, NULL},
    {TEXT("torch._utils"), TEXT("_rebuild_parameter"), rebuild_parameter, NULL},
    {TEXT("torch._utils"), TEXT("_rebuild_tensor_v3"), rebuild_v3, NULL},
    {TEXT("torch._utils"), TEXT("_rebuild_parameter_with_state"), rebuild_parameter, NULL},
    {TEXT("torch._utils"), TEXT("_rebuild_tensor"), rebuild_v1, NULL},
    {TEXT("torch._utils"), TEXT("_rebuild_device_tensor_from_cpu_tensor"), rebuild_device, NULL},
    {TEXT("torch._tensor"), TEXT("_rebuild_from_type"), rebuild_from_type, NULL},
    {TEXT("torch._tensor"), TEXT("_rebuild_from_type_v2"), rebuild_from_type, NULL},
    {TEXT("torch.tensor"), TEXT("_rebuild_from_type"), rebuild_from_type, NULL},
    {TEXT("torch.tensor"), TEXT("_rebuild_from_type_v2"), rebuild_from_type, NULL},
    /* its seventh argument is a format number; the bytes are a copy made on the host, always in plain order */
    {TEXT("torch_npu.utils.storage"), TEXT("_rebuild_npu_tensor"), rebuild_v2, NULL},
    {TEXT("torch_npu.npu._format"), TEXT("Format"), make_opaque, NULL},
    {TEXT("torch"), TEXT("Size"), make_size, NULL},
    {TEXT("torch"), TEXT("device"), make_opaque, NULL},
    {TEXT("torch"), TEXT("Tensor"), make_opaque, NULL},
    {TEXT("torch.nn.parameter"), TEXT("Parameter"), make_opaque, NULL},
    {TEXT("torch.nn.parameter"), TEXT("Buffer"), make_opaque, NULL},
    {TEXT("torch.serialization"), TEXT("_get_layout"), make_opaque, NULL},
    {TEXT("torch._utils"), TEXT("_get_layout"), make_opaque, NULL},
    {TEXT("collections"), TEXT("defaultdict"), make_dict, NULL},
    {TEXT("collections"), TEXT("Counter"), make_opaque, NULL},
    {TEXT("builtins"), TEXT("dict"), make_dict, NULL},
    {TEXT("__builtin__"), TEXT("dict"), make_dict, NULL},
    {TEXT("builtins"), TEXT("list"), make_opaque, NULL},
    {TEXT("__builtin__"), TEXT("list"), make_opaque, NULL},
    {TEXT("builtins"), TEXT("set"), make_opaque, NULL},
    {TEXT("__builtin__"), TEXT("set"), make_opaque, NULL},
    {TEXT("builtins"), TEXT("frozenset"), make_opaque, NULL},
    {TEXT("builtins"), TEXT("int"), make_opaque, NULL},
    {TEXT("builtins"), TEXT("float"), make_opaque, NULL},
    {TEXT("builtins"), TEXT("complex"), make_opaque, NULL},
    {TEXT("__builtin__"), TEXT("complex"), make_opaque, NULL},
    {TEXT("builtins"), TEXT("slice"), make_opaque, NULL},
    {TEXT("builtins"), TEXT("bytearray"), make_opaque, NULL},
    {TEXT("__builtin__"), TEXT("bytearray"), make_opaque, NULL},
    {TEXT("_codecs"), TEXT("encode"), make_opaque, NULL},
    {TEXT("numpy"), TEXT("dtype"), make_opaque, NULL},
    {TEXT("numpy.core.multiarray"), TEXT("scalar"), make_opaque, NULL},
    {TEXT("numpy._core.multiarray"), TEXT("scalar"), make_opaque, NULL},
    {TEXT("torch"), TEXT("complex32"), NULL, "elements of the type torch.complex32"},
    {TEXT("torch"), TEXT("float8_e8m0fnu"), NULL, "elements of the type torch.float8_e8m0fnu"},
    {TEXT("torch"), TEXT("float4_e2m1fn_x2"), NULL, "elements of the type torch.float4_e2m1fn_x2"},
    {TEXT("torch"), TEXT("bits8"), NULL, "elements of the type torch.bits8"},
    {TEXT("torch"), TEXT("bits16"), NULL, "elements of the type torch.bits16"},
    {TEXT("torch._utils"), TEXT("_rebuild_sparse_tensor"), NULL, "a sparse tensor: save it after .to_dense()"},
    {TEXT("torch._utils"), TEXT("_rebuild_sparse_csr_tensor"), NULL, "a sparse tensor: save it after .to_dense()"},
    {TEXT("torch._utils"), TEXT("_rebuild_qtensor"), NULL,
     "a quantized tensor: save it after .dequantize() or .int_repr()"},
    {TEXT("torch._utils"), TEXT("_rebuild_nested_tensor"), NULL, "a nested tensor: save its parts"},
    {TEXT("torch._utils"), TEXT("_rebuild_meta_tensor_no_storage"), NULL, "a meta tensor, which holds no values"},
    {TEXT("torch._utils"), TEXT("_rebuild_wrapper_subclass"), NULL, "a tensor subclass without bytes of its own"},
    {TEXT("torch._utils"), TEXT("_rebuild_device_tensor_from_numpy"), NULL,
     "a device tensor kept as a NumPy array: save it after .cpu()"},
    {TEXT("torch.storage"), TEXT("_load_from_bytes"), NULL,
     "a tensor written by pickle.dump(): write it with torch.save()"},
    {TEXT("numpy.core.multiarray"), TEXT("_reconstruct"), NULL,
     "a NumPy array: save it as a tensor, or with numpy.save()"},
    {TEXT("numpy._core.multiarray"), TEXT("_reconstruct"), NULL,
     "a NumPy array: save it as a tensor, or with numpy.save()"},
};

static const struct known *
find_known(msp_str module, msp_str name)
{
    /* torch_npu has moved its function from one module to another */
    if (msp_str_eq(name, MSP_STR("_rebuild_npu_tensor")) && msp_str_starts(module, MSP_STR("torch_npu.")))
        module = MSP_STR("torch_npu.utils.storage");
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (msp_str_eq(name, known[i].name) && msp_str_eq(module, known[i].module))
            return &known[i];
    return NULL;
}

static action *
callable_action(value v)
{
    return is_object(v, TAG_CALLABLE) ? ((const struct known *)v.as.object)->run : NULL;
}

static const struct storage_class {
    msp_str name;
    msp_dtype dtype;
} storage_classes[] = {
    {TEXT("FloatStorage"), MSP_F32},
    {TEXT("BFloat16Storage"), MSP_BF16},
    {TEXT("HalfStorage"), MSP_F16},
    {TEXT("LongStorage"), MSP_I64},
    {TEXT("DoubleStorage"), MSP_F64},
    {TEXT("IntStorage"), MSP_I32},
    {TEXT("ShortStorage"), MSP_I16},
    {TEXT("CharStorage"), MSP_I8},
    {TEXT("ByteStorage"), MSP_U8},
    {TEXT("BoolStorage"), MSP_BOOL},
    {TEXT("ComplexFloatStorage"), MSP_C64},
    {TEXT("ComplexDoubleStorage"), MSP_C128},
    {TEXT("UntypedStorage"), MSP_DTYPE_NONE},
    {TEXT("_UntypedStorage"), MSP_DTYPE_NONE},
};

enum { STORAGE_CLASSES = sizeof(storage_classes) / sizeof(storage_classes[0]) };

const char *
msp_torch_storage_name(msp_dtype t)
{
    for (size_t i = 0; i < STORAGE_CLASSES && t != MSP_DTYPE_NONE; i++)
        if (storage_classes[i].dtype == t)
            return storage_classes[i].name.p;
    return NULL;
}

/* torch.FloatStorage, torch.storage.UntypedStorage, torch.npu.HalfStorage, ... */
static bool
is_storage_class(msp_str module, msp_str name)
{
    static const msp_str modules[] = {TEXT("torch"), TEXT("torch.storage"), TEXT("torch.cuda"), TEXT("torch.npu"),
                                      TEXT("torch_npu.npu")};

    if (!msp_str_ends(name, MSP_STR("Storage")))
        return false;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
        if (msp_str_eq(module, modules[i]))
            return true;
    return false;
}

/* A dtype travels in the value's len: it needs no memory. */
static value
dtype_object(int tag, msp_dtype t)
{
    return (value){.kind = MSP_PICKLE_OBJECT, .tag = (uint8_t)tag, .len = t};
}

static const struct storage_class *
storage_class_of(msp_str name)
{
    for (size_t i = 0; i < STORAGE_CLASSES; i++)
        if (msp_str_eq(name, storage_classes[i].name))
            return &storage_classes[i];
    return NULL;
}

msp_dtype
msp_torch_storage_dtype(msp_str name)
{
    const struct storage_class *c = storage_class_of(name);

    return c == NULL ? MSP_DTYPE_NONE : c->dtype;
}

static msp_status
find_storage_class(value *out, msp_str name, msp_error *err)
{
    const struct storage_class *c = storage_class_of(name);

    if (c != NULL) {
        *out = dtype_object(TAG_STORAGE_CLASS, c->dtype);
        return MSP_OK;
    }
    return msp_error_set(err, MSP_E_UNSUPPORTED, "torch.%.*s has elements of a type that is not read", (int)name.len,
                         name.p);
}

static bool
torch_dtype(value *out, msp_str name)
{
    for (int t = 1; t < MSP_DTYPE_COUNT; t++) {
        if (msp_str_eq(name, msp_str_of(msp_dtype_torch_name((msp_dtype)t) + strlen("torch.")))) {
            *out = dtype_object(TAG_DTYPE, (msp_dtype)t);
            return true;
        }
    }
    return false;
}

static msp_status
rule_global(value *out, msp_str module, msp_str name, void *payload, msp_error *err)
{
    const struct known *k;

    (void)payload;
    if (is_storage_class(module, name))
        return find_storage_class(out, name, err);
    k = find_known(module, name);
    if (k != NULL && k->run != NULL) {
        *out = make_object(TAG_CALLABLE, (void *)k);
        return MSP_OK;
    }
    if (k != NULL)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "not read: %s", k->reason);
    if (msp_str_eq(module, MSP_STR("torch")) && torch_dtype(out, name))
        return MSP_OK;
    return msp_error_set(err, MSP_E_UNSUPPORTED,
                         "refused %.*s.%.*s: only tensors in dicts, lists and tuples are read, and nothing is executed",
                         (int)module.len, module.p, (int)name.len, name.p);
}

static msp_status
rule_call(value *out, value callee, value args, void *payload, msp_error *err)
{
    action *f = callable_action(callee);

    if (f == NULL)
        return wrong_arguments(err, "a call of something that is no function");
    return f(out, args.as.items, args.len, payload, err);
}

/* ---- storages --------------------------------------------------------------------------------------------------- */

msp_torch_blob *
msp_torch_blob_of(const msp_torch_model *m, msp_str key)
{
    msp_torch_blob *b = m->blobs;
    msp_map_entry *e;

    if (m->nblobs > FEW_BLOBS) {
        e = msp_map_get(&m->keys, key);
        return e == NULL ? NULL : (msp_torch_blob *)(intptr_t)e->value;
    }
    while (b != NULL && !msp_str_eq(b->key, key))
        b = b->next;
    return b;
}

/* Put b at the end of the row, and into the map once the row is long; the first of that time brings all the others. */
static msp_status
add_blob(msp_torch_model *m, msp_torch_blob *b, msp_error *err)
{
    msp_torch_blob *from = m->nblobs == FEW_BLOBS ? m->blobs : b;
    msp_status st = msp_budget_spend(m->budget, 2, sizeof(msp_map_entry), err);

    *m->blobs_end = b;
    m->blobs_end = &b->next;
    if (++m->nblobs <= FEW_BLOBS)
        return st;
    for (; st == MSP_OK && from != NULL; from = from->next)
        if (msp_map_put(&m->keys, from->key, (intptr_t)from, NULL) == NULL)
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    return st;
}

static msp_status
find_blob(msp_torch_blob **out, msp_torch_model *m, msp_str key, msp_dtype dtype, msp_error *err)
{
    msp_status st;
    void *p;

    *out = msp_torch_blob_of(m, key);
    if (*out != NULL)
        return MSP_OK;
    st = msp_budget_alloc(&p, m->budget, 1, sizeof(**out), err);
    if (st != MSP_OK)
        return st;
    *out = p;
    (*out)->key = key;
    (*out)->dtype = dtype == MSP_DTYPE_NONE ? MSP_U8 : dtype;
    return add_blob(m, *out, err);
}

/* (view_key, offset, numel) in legacy files: a part of the storage under key. */
static msp_status
apply_view(storage *s, value view, msp_error *err)
{
    size_t size = s->dtype == MSP_DTYPE_NONE ? 1 : msp_dtype_size(s->dtype);
    const value *v = view.as.items;

    if (view.kind == MSP_PICKLE_NONE)
        return MSP_OK;
    if (view.kind != MSP_PICKLE_TUPLE || view.len != 3 || v[1].kind != MSP_PICKLE_INT || v[2].kind != MSP_PICKLE_INT ||
        v[1].as.integer < 0 || v[2].as.integer < 0 || (uint64_t)v[1].as.integer > s->numel ||
        (uint64_t)v[2].as.integer > s->numel - (uint64_t)v[1].as.integer)
        return wrong_arguments(err, "a storage is a part of another that it does not fit");
    s->offset = (uint64_t)v[1].as.integer * size;
    s->numel = (uint64_t)v[2].as.integer;
    return MSP_OK;
}

/* ("storage", class, key, location, numel[, view]) */
static msp_status
rule_persistent(value *out, value id, void *payload, msp_error *err)
{
    msp_torch_model *m = payload;
    const value *v = id.as.items;
    uint64_t bytes;
    msp_status st;
    storage *s;
    void *p;

    if (id.kind == MSP_PICKLE_TUPLE && id.len > 0 && msp_str_eq(msp_pickle_text(v[0]), MSP_STR("module")))
        return msp_error_set(err, MSP_E_UNSUPPORTED, "a whole module was saved: save its state_dict()");
    if (id.kind != MSP_PICKLE_TUPLE || id.len < 5 || !msp_str_eq(msp_pickle_text(v[0]), MSP_STR("storage")) ||
        !is_object(v[1], TAG_STORAGE_CLASS) || v[2].kind != MSP_PICKLE_TEXT || v[4].kind != MSP_PICKLE_INT ||
        v[4].as.integer < 0)
        return wrong_arguments(err, "a persistent id that is no storage");
    if (v[2].len > MSP_TORCH_KEY_MAX)
        return msp_error_set(err, MSP_E_LIMIT, "a storage with a key of %u bytes", v[2].len);
    st = msp_budget_alloc(&p, m->budget, 1, sizeof(*s), err);
    if (st != MSP_OK)
        return st;
    s = p;
    s->dtype = (msp_dtype)v[1].len;
    s->numel = (uint64_t)v[4].as.integer;
    if (__builtin_mul_overflow(s->numel, s->dtype == MSP_DTYPE_NONE ? 1 : msp_dtype_size(s->dtype), &bytes))
        return wrong_arguments(err, "a storage whose size does not fit 64 bits");
    st = find_blob(&s->blob, m, msp_pickle_text(v[2]), s->dtype, err);
    if (st != MSP_OK)
        return st;
    if (s->blob->need < bytes)
        s->blob->need = bytes;
    if (id.len > 5)
        st = apply_view(s, v[5], err);
    *out = make_object(TAG_STORAGE, s);
    return st;
}

/* ---- the model -------------------------------------------------------------------------------------------------- */

void
msp_torch_model_init(msp_torch_model *m, msp_budget *budget)
{
    *m = (msp_torch_model){.budget = budget};
    m->blobs_end = &m->blobs;
}

void
msp_torch_model_release(msp_torch_model *m)
{
    msp_map_release(&m->keys);
    *m = (msp_torch_model){0};
}

msp_status
msp_torch_unpickle(msp_pickle_value *out, size_t *used, msp_torch_model *m, const void *bytes, size_t size,
                   msp_error *err)
{
    const msp_pickle_rules rules = {rule_global, rule_call, rule_persistent, m};

    return msp_pickle_read(out, used, bytes, size, m->budget, &rules, err);
}
