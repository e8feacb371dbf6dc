"""Does a real language model learn here, and does sharing help it?"""
