/*
 * test_torch_one.c - the pickle of one tensor that is recognised at a glance is the tensor that the machine makes of
 * it.
 */
#include "unit.h"
#include "io/torch_one.h"
#include "io/torch_pickle.h"

/* torch.save(torch.zeros(2, 3, requires_grad=True)) */
static const char usual[] = "\x80\x02"
                            "ctorch._utils\n_rebuild_tensor_v2\nq\x00((X\x07\x00\x00\x00storageq\x01"
                            "ctorch\nFloatStorage\nq\x02X\x01\x00\x00\x00"
                            "0q\x03X\x03\x00\x00\x00"
                            "cpuq\x04K\x06tq\x05QK\x00K\x02K\x03\x86q\x06K\x03K\x01\x86q\x07\x88"
                            "ccollections\nOrderedDict\nq\x08)Rq\ttq\nRq\x0b.";

enum { USUAL_SIZE = sizeof(usual) - 1 };

static void
assert_same_tensor(const msp_torch_tensor *a, const msp_torch_tensor *b)
{
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_int_equal(a->numel, b->numel);
    assert_int_equal(a->requires_grad, b->requires_grad);
    assert_int_equal(a->blob->need, b->blob->need);
    assert_int_equal(a->blob->swap_width, b->blob->swap_width);
    assert_true(msp_str_eq(a->blob->key, b->blob->key));
    for (int32_t i = 0; i < a->ndim; i++) {
        assert_int_equal(a->shape[i], b->shape[i]);
        assert_int_equal(a->strides[i], b->strides[i]);
    }
}

/* Is it recognised? Then the machine agrees; it may also understand what is not. */
static bool
check_both_ways(const char *pickle, size_t size)
{
    msp_torch_model model;
    msp_pickle_value value;
    msp_budget budget;
    msp_torch_one one;

    if (!msp_torch_one_read(&one, pickle, size))
        return false;
    msp_budget_init(&budget, size);
    msp_torch_model_init(&model, &budget);
    assert_int_equal(msp_torch_unpickle(&value, NULL, &model, pickle, size, NULL), MSP_OK);
    assert_same_tensor(&one.tensor, msp_torch_tensor_of(value));
    msp_torch_model_release(&model);
    msp_budget_release(&budget);
    return true;
}

static void
what_torch_writes_is_recognised(void **state)
{
    msp_torch_one one;

    (void)state;
    assert_true(msp_torch_one_read(&one, usual, USUAL_SIZE));
    assert_true(msp_str_eq(one.blob.key, MSP_STR("0")));
    assert_int_equal(one.blob.need, 24);
    assert_int_equal(one.tensor.offset, 0);
    assert_int_equal(one.tensor.dtype, MSP_F32);
    assert_int_equal(one.tensor.ndim, 2);
    assert_int_equal(one.tensor.numel, 6);
    assert_int_equal(one.tensor.shape[1], 3);
    assert_int_equal(one.tensor.strides[0], 3);
    assert_true(one.tensor.requires_grad);
    assert_true(check_both_ways(usual, USUAL_SIZE));
}

/* The sizes and strides of `usual` replaced by others. */
static void
expect_dims(msp_str dims, bool known)
{
    static const char old[] = "K\x02K\x03\x86q\x06K\x03K\x01\x86q\x07";
    const char *at = msp_str_find((msp_str){usual, USUAL_SIZE}, (msp_str){old, sizeof(old) - 1});
    size_t before = (size_t)(at - usual), behind = USUAL_SIZE - before - (sizeof(old) - 1);
    char pickle[512];

    memcpy(pickle, usual, before);
    memcpy(pickle + before, dims.p, dims.len);
    memcpy(pickle + before + dims.len, at + sizeof(old) - 1, behind);
    assert_int_equal(check_both_ways(pickle, before + dims.len + behind), known);
}

static void
sizes_of_every_form_mean_what_the_machine_says(void **state)
{
    (void)state;
    expect_dims(MSP_STR("))"), true);
    expect_dims(MSP_STR("K\x06\x85K\x01\x85"), true);
    expect_dims(MSP_STR("K\x01K\x02K\x03\x87q\x06K\x06K\x03K\x01\x87q\x07"), true);
    expect_dims(MSP_STR("(K\x01K\x01K\x02K\x03tq\x06(K\x06K\x06K\x03K\x01tq\x07"), true);
    expect_dims(MSP_STR("M\x06\x00\x85J\x01\x00\x00\x00\x85"), true);
    expect_dims(MSP_STR("\x8a\x08\x06\x00\x00\x00\x00\x00\x00\x00\x85K\x01\x85"), true);
    expect_dims(MSP_STR("(t(t"), true);
    /* these are wrong in what they say: the machine has the last word */
    expect_dims(MSP_STR("J\xff\xff\xff\xff\x85K\x01\x85"), false);
    expect_dims(MSP_STR("K\x07\x85K\x01\x85"), false);
    expect_dims(MSP_STR("K\x06\x85)"), false);
    expect_dims(MSP_STR("\x84\x84"), false);
    expect_dims(MSP_STR("K\x06\x86K\x01\x85"), false);
    expect_dims(MSP_STR("K\x01K\x01K\x02K\x03\x88)"), false);
}

static void
a_byte_more_or_less_or_another_one_makes_no_difference_between_the_two_ways(void **state)
{
    char pickle[USUAL_SIZE];
    size_t known = 0;

    (void)state;
    for (size_t n = 0; n < USUAL_SIZE; n++)
        assert_false(check_both_ways(usual, n));
    for (size_t i = 0; i < USUAL_SIZE; i++)
        for (int c = 0; c < 256; c++) {
            memcpy(pickle, usual, USUAL_SIZE);
            pickle[i] = (char)c;
            known += check_both_ways(pickle, USUAL_SIZE);
        }
    assert_true(known > USUAL_SIZE); /* numbers and names may be others */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_torch_writes_is_recognised),
        TEST(sizes_of_every_form_mean_what_the_machine_says),
        TEST(a_byte_more_or_less_or_another_one_makes_no_difference_between_the_two_ways),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
