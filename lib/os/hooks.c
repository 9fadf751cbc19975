#include "os/hooks.h"

struct hooks hooks;
