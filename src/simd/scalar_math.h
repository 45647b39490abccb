// Elementary functions in double, compiled once and without libm's (fma apart, which is exact), so that tables of
// positions and frequencies have the same bits on every machine.
#pragma once

namespace lockstep::f64 {

// e^x, 1 ulp; +Inf above 709.79, 0 below -745.2, NaN for NaN.
double Exp(double x);

// Natural logarithm, 1 ulp; -Inf at 0, +Inf at +Inf, NaN below 0 and for NaN.
double Log(double x);

// base^y for base >= 0, 1 ulp while |y log base| <= 32, growing in proportion beyond; 1 where y is 0 or base is 1,
// NaN for a negative base or where an operand is NaN; for base 0: 0, 1, +Inf where y is above, at, below 0.
double Pow(double base, double y);

// sin and cos of x in radians: error at most 2^-53 + 1 ulp for |x| <= 2^30, NaN beyond and for NaN.
double Sin(double x);
double Cos(double x);

}  // namespace lockstep::f64
