"""The parts of the report's page: charts as plain data, sections as HTML, and the frame that holds them.

In: a `RaceResult`. Out: dictionaries that plotly draws, and text with everything from outside escaped. Imports nothing
of plotly: `report.py` alone does, and only when a page is asked for.
"""
