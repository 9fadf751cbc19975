// Catch2's main function for version 2, which Debian 12 and Ubuntu 24.04 have.
#define CATCH_CONFIG_MAIN
#include "catch.hpp"
