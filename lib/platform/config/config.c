#include "platform/config/config.h"

/* Strings and lists start as NULL or 0. */
struct sheaf_config sheaf_config = {
#define OPTION_BOOLEAN(name, field, default_, ...)      .field = default_,
#define OPTION_NUMBER(name, field, default_, ...)       .field = default_,
#define OPTION_SIZE(name, field, default_, ...)         .field = default_,
#define OPTION_CHOICE(name, type, field, default_, ...) .field = default_,
#include "platform/config/options.def"
};
