#ifndef LR_WEATHER_H
#define LR_WEATHER_H

#include "model.h"

/* Returns a number in [0, 1) for a period of time. */
double lr_drawn(uint64_t seed, int64_t period);
/* Returns a rail's share of its rate at a time. */
double lr_weather(const struct lr_rail *r, int64_t t);
/* Reports whether the rate of a rail varies. */
int lr_varies(const struct lr_rail *r);

#endif
