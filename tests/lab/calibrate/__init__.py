"""Tests of `holdfast.lab.calibrate`."""
