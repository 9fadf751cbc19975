#include "config/config.h"

struct sheaf_config sheaf_config = SHEAF_CONFIG_DEFAULT;
