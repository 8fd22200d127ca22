/*
 * One epoch of mini-batch SGD for the logistic loss, a row per call, as Bismarck does it.
 *
 * Loss log(1 + exp(-y<w, x>)) with y in {-1, +1}. A mini-batch of b rows makes one step
 * w <- w - step_size * (gradient / b + regularisation * w); a last, shorter one is divided
 * by b as well.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "utils/array.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(logreg_step);
PG_FUNCTION_INFO_V1(logreg_model);

/* Four independent sums hide the latency of the multiply-add; GCC maps each to a register. */
typedef double Lanes __attribute__((vector_size(32), aligned(8), may_alias));
#define LANES 4
#define UNROLLED (4 * LANES)

#define CACHE_LINE 64
#define ROWS_AHEAD 2			/* measured: one row is late, four gain no more */
#define REST_OF_ROW 32			/* tuple header and label */

typedef struct Epoch
{
	int			features;
	int			batch_size;
	int			rows_in_batch;
	double		step_size;
	double		decay;			/* 1 - step_size * regularisation */
	double	   *model;
	double	   *descent;		/* sum of the batch's negative gradients */
} Epoch;

static inline double
dot(const double *a, const double *b, int length)
{
	Lanes		sums[4] = {{0}, {0}, {0}, {0}};
	Lanes		total;
	double		rest = 0;
	int			i = 0;

	for (; i + UNROLLED <= length; i += UNROLLED)
		for (int k = 0; k < 4; k++)
			sums[k] += *(const Lanes *) (a + i + k * LANES) * *(const Lanes *) (b + i + k * LANES);
	for (; i + LANES <= length; i += LANES)
		sums[0] += *(const Lanes *) (a + i) * *(const Lanes *) (b + i);
	for (; i < length; i++)
		rest += a[i] * b[i];

	total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
	return (total[0] + total[1]) + (total[2] + total[3]) + rest;
}

/* target <- decay * target + scale * x */
static inline void
blend(double *restrict target, double decay, double scale, const double *restrict x, int length)
{
	for (int i = 0; i < length; i++)
		target[i] = decay * target[i] + scale * x[i];
}

/* target <- target + scale * x */
static inline void
add(double *restrict target, double scale, const double *restrict x, int length)
{
	for (int i = 0; i < length; i++)
		target[i] += scale * x[i];
}

/* A heap page holds later rows below earlier ones: request one while this one is used. */
static inline void
prefetch_later_row(const ArrayType *x)
{
	const char *later = (const char *) x - ROWS_AHEAD * (VARSIZE(x) + REST_OF_ROW);

	for (Size offset = 0; offset < VARSIZE(x); offset += CACHE_LINE)
		__builtin_prefetch(later + offset);
}

/* The array where it lies in its page, unless it is short, compressed or toasted. */
static inline const ArrayType *
plain_array(Datum datum)
{
	if (VARATT_IS_EXTENDED(DatumGetPointer(datum)))
		return DatumGetArrayTypeP(datum);
	return (const ArrayType *) DatumGetPointer(datum);
}

static const double *
checked_values(const ArrayType *array, int length)
{
	if (ARR_NDIM(array) != 1 || ARR_DIMS(array)[0] != length || ARR_HASNULL(array))
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("the features must be one array of %d numbers without nulls", length),
				 errhint("Give an initial model of the features' length.")));
	return (const double *) ARR_DATA_PTR(array);
}

static void
check_settings(FunctionCallInfo fcinfo)
{
	for (int argument = 3; argument <= 6; argument++)
		if (PG_ARGISNULL(argument))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument %d of logreg_epoch is null", argument),
					 errhint("Give a model, a batch size, a step size and a regularisation.")));
	if (PG_GETARG_INT32(4) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_size is %d", PG_GETARG_INT32(4)),
				 errhint("Give a batch_size of at least 1.")));
}

static Epoch *
new_epoch(FunctionCallInfo fcinfo, MemoryContext context)
{
	ArrayType  *initial = PG_GETARG_ARRAYTYPE_P(3);
	int			features = ARR_NDIM(initial) == 1 ? ARR_DIMS(initial)[0] : 0;
	Size		size = features * sizeof(double);
	Epoch	   *epoch = MemoryContextAllocZero(context, sizeof(Epoch));

	epoch->features = features;
	epoch->batch_size = PG_GETARG_INT32(4);
	epoch->step_size = PG_GETARG_FLOAT8(5);
	epoch->decay = 1 - epoch->step_size * PG_GETARG_FLOAT8(6);
	epoch->model = MemoryContextAlloc(context, size);
	epoch->descent = MemoryContextAllocZero(context, size);
	memcpy(epoch->model, checked_values(initial, features), size);
	return epoch;
}

static Epoch *
first_epoch(FunctionCallInfo fcinfo)
{
	MemoryContext context;

	if (!AggCheckCallContext(fcinfo, &context))
		elog(ERROR, "logreg_step was called outside an aggregate: call logreg_epoch");
	check_settings(fcinfo);
	return new_epoch(fcinfo, context);
}

static void
finish_batch(Epoch *epoch)
{
	blend(epoch->model, epoch->decay, epoch->step_size / epoch->batch_size,
		  epoch->descent, epoch->features);
	memset(epoch->descent, 0, epoch->features * sizeof(double));
	epoch->rows_in_batch = 0;
}

static inline void
take_row(Epoch *epoch, const double *x, double y)
{
	double		slope = y / (1 + exp(y * dot(epoch->model, x, epoch->features)));

	if (epoch->batch_size == 1)
	{
		blend(epoch->model, epoch->decay, epoch->step_size * slope, x, epoch->features);
		return;
	}
	add(epoch->descent, slope, x, epoch->features);
	if (++epoch->rows_in_batch == epoch->batch_size)
		finish_batch(epoch);
}

Datum
logreg_step(PG_FUNCTION_ARGS)
{
	Epoch	   *epoch = PG_ARGISNULL(0) ? first_epoch(fcinfo) : (Epoch *) PG_GETARG_POINTER(0);

	if (!PG_ARGISNULL(1) && !PG_ARGISNULL(2))
	{
		const ArrayType *x = plain_array(PG_GETARG_DATUM(1));

		prefetch_later_row(x);
		take_row(epoch, checked_values(x, epoch->features), PG_GETARG_FLOAT8(2));
	}
	PG_RETURN_POINTER(epoch);
}

Datum
logreg_model(PG_FUNCTION_ARGS)
{
	Epoch	   *epoch;
	Datum	   *model;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	epoch = (Epoch *) PG_GETARG_POINTER(0);
	if (epoch->rows_in_batch > 0)
		finish_batch(epoch);
	model = palloc(epoch->features * sizeof(Datum));
	for (int i = 0; i < epoch->features; i++)
		model[i] = Float8GetDatum(epoch->model[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(model, epoch->features, FLOAT8OID,
										  sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
