// For these tests, Catch2 2.x and 3.x differ only in the name of the header.
#pragma once
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif
