"""What happened, told to people: the trace of one operation in characters and as a picture.

In: an `Outcome`, of one rank or of all of them. Out: text, SVG. May import `outcome` and nothing else.
"""
