"""A small transformer with sparse attention, trained as several systems side by side.

Systems that select the same keys must train the same model: ``python -m hyscale_calibration.training`` trains them step
by step in turn and records where losses, selections and weights first differ, and what a step takes. Importing this
package imports nothing.
"""
